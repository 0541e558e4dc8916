"""``deltarelay audit optimize``: fewer files, and those of one record close together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.result import Result
from infra.cli.commands.audit.common import each_trail, loaded
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.output import DONE, Output, counted

if TYPE_CHECKING:
    from audit.trail.trail import Trail

__all__ = ["optimize"]


def optimize(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Write the trails' files anew in the order of the key, so that the history of a record reads few of them.

    The rows and their hashes stay what they are. It reads and writes all of a trail; the files of before go with VACUUM. A
    runner may be at work, except where storage.commits promises a single writer: then one waits for the other.
    """
    output = Output("audit optimize", as_json, debug)
    project = loaded(config)

    def work(name: str, trail: Trail) -> tuple[Result, int]:
        key = project.pipeline(name).source.key
        done = trail.optimize(key, progress=lambda table: output.note(f"{name}: writing the {table} anew …"))
        words = (f"{table} {done.before[table]} → {counted(after, 'file')}" for table, after in done.after.items())
        output.line(f"{name}: " + ", ".join(words))
        return done, DONE

    each_trail(output, config, pipeline, work)

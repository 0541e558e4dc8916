"""``deltarelay audit optimize``: rewrites trails into fewer files, with the events of a record close together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.result import Result
from infra.cli.commands.audit.trails import process_trails
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.cli.project import load_project
from infra.output import DONE, Output, format_count

if TYPE_CHECKING:
    from audit.audit_trail import Trail

__all__ = ["optimize"]


def optimize(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Rewrite the files of the trails in the order of the key, so that a query for one record reads few files.

    Rows and hashes do not change. The command reads and writes the whole trail; VACUUM removes the old files. The pipeline
    may run at the same time, unless storage.commits promises a single writer: then the one that starts later waits until the
    other one has ended.
    """
    output = Output("audit optimize", as_json, debug)
    project = load_project(config)

    def optimize_trail(name: str, trail: Trail) -> tuple[Result, int]:
        key = project.pipeline(name).source.key
        result = trail.optimize(key, progress=lambda table: output.note(f"{name}: rewriting the {table} …"))
        changes = (
            f"{table} {result.before[table]} → {format_count(after, 'file')}" for table, after in result.after.items()
        )
        output.line(f"{name}: " + ", ".join(changes))
        return result, DONE

    process_trails(output, config, pipeline, optimize_trail)

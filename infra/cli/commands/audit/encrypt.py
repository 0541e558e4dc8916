"""``deltarelay audit encrypt``: encrypts rows that a trail stored before their columns were configured as personal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.result import Result
from infra.cli.commands.audit.trails import build_trail_sink, process_trails
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, expand_options
from infra.cli.project import load_project
from infra.output import DIFFERENCE, DONE, Output, format_count

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.reencryption.plaintext_rows import PlaintextRows

__all__ = ["TrailEncrypted", "encrypt", "seal"]


@dataclass(frozen=True, slots=True)
class TrailEncrypted(Result):
    rows: int
    """Rows in plain text that were found, whose columns are configured as personal."""
    first_version: int | None
    last_version: int | None
    classes: Mapping[str, int] = field(default_factory=dict)
    """Rows by class; a row may belong to several."""
    sealed: int = 0
    """Rows that this command encrypted."""


@dataclass(frozen=True, slots=True)
class EncryptOptions:
    """The options of both names of the command."""

    config: Config = DEFAULT_CONFIG
    pipeline: Pipelines = None
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing: report the rows to encrypt; exit code 3 if there are any.")
    ] = False
    ticket: Annotated[
        str | None,
        typer.Option("--ticket", help="The reason, such as a ticket number; stored permanently in the trail."),
    ] = None
    as_json: Json = False
    debug: Debug = False


@expand_options
def encrypt(options: EncryptOptions) -> None:
    """Encrypt rows that a trail stored in plain text before `classes` in `erasure.tables` named their columns.

    The trail is verified first: each row must match the hash of its event. The change is recorded in the trail, and `audit
    verify` checks the rows against that record. The old files stay readable until VACUUM removes them, after
    delta.deletedFileRetentionDuration of the payload table, or until the next `erase run`. While such rows exist, `erase
    run` does not start, because its certificate would be false for these rows.
    """
    _encrypt_trails(Output("audit encrypt", options.as_json, options.debug), options)


@expand_options
def seal(options: EncryptOptions) -> None:
    """The former name of `audit encrypt`."""
    output = Output("audit seal", options.as_json, options.debug)
    output.note("warning: `audit seal` is deprecated: use `audit encrypt`. The old name is accepted until 1.0")
    _encrypt_trails(output, options)


def _encrypt_trails(output: Output, options: EncryptOptions) -> None:
    project = load_project(options.config)

    def encrypt_trail(name: str, _: Trail) -> tuple[Result, int]:
        sink, source = build_trail_sink(project, name), project.pipeline(name).source
        found = sink.erasure.unencrypted_rows()
        output.line(f"{name}: {_format_found(found)}")
        counts = TrailEncrypted(found.rows, found.first_version, found.last_version, found.classes)
        if not found.rows or options.check:
            return counts, DIFFERENCE if found.rows else DONE

        def show_progress(done: int) -> None:
            output.note(f"{name}: encrypted {done:,} of {found.rows:,} rows …")

        output.note(f"{name}: verifying the trail first …")
        reasons = {"purpose": "sealing", **({} if options.ticket is None else {"ticket": options.ticket})}
        sink.encrypt_earlier_rows(source.table, tuple(source.key), reasons, progress=show_progress)
        output.line(f"{name}: encrypted {format_count(found.rows, 'row')}, and recorded it in the trail")
        encrypted = TrailEncrypted(found.rows, found.first_version, found.last_version, found.classes, found.rows)
        return encrypted, DONE

    process_trails(output, options.config, options.pipeline, encrypt_trail)


def _format_found(found: PlaintextRows) -> str:
    if not found.rows:
        return "no rows to encrypt"
    classes = ", ".join(f"{name} {count:,}" for name, count in found.classes.items())
    return (
        f"{format_count(found.rows, 'row')} in plain text of versions {found.first_version} to {found.last_version}, stored "
        f"before their columns were configured as personal ({classes})"
    )

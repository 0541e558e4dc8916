"""``deltarelay init``: writes a configuration file to start from. Starts no JVM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError, TableNotFound
from cdf.listing import list_some
from infra.cli.options import DEFAULT_CONFIG, Debug, Json
from infra.output import Output, format_count

if TYPE_CHECKING:
    from infra.scaffold import Scaffold
    from infra.scaffold_tables import TablesScaffold

__all__ = ["init"]

_TABLES_PER_NOTE = 20


def init(
    table: Annotated[
        str | None,
        typer.Argument(
            help="Path or URL of an existing Delta table, or a quoted pattern of tables such as 's3a://lake/sales/*'; "
            "without it, the file contains an example."
        ),
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The file to write.")] = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a commented configuration file, with the columns of a table and a proposed key.

    For a pattern: one file for all tables, with the most frequent key, and the tables that have another one.
    """
    from infra.config.values import resolve_table
    from infra.diagnostics.delta_table import is_catalog_name, open_source
    from infra.s3.address import is_s3
    from infra.scaffold import scaffold, write_new
    from infra.scaffold_tables import find_tables_below, is_pattern

    output = Output("init", as_json, debug)
    if table is not None and is_pattern(table):
        _write_for_many(output, table, to, overwrite=force)
        return
    source = None
    if table is not None:
        try:
            written = resolve_table(table, None)
        except ValueError as error:  # `validate` would report the same problem later
            raise ConfigError(f"the table's address {error}", hint="name the folder that contains _delta_log") from None
        # A bare folder name is accepted as a path on the command line; in the file it would be a catalog name
        is_local = is_catalog_name(table) and Path(table).is_dir()
        address = f"./{table}" if is_local else written if is_s3(table) else table
        try:
            source = open_source(address)
        except TableNotFound as error:
            if "/" not in address or not (below := find_tables_below(address)):
                raise
            hint = f"write one file for all of them: deltarelay init '{address.rstrip('/')}/*'"
            message = f"{address} is not a Delta table, but contains {format_count(len(below), 'table')}"
            raise TableNotFound(message, hint=hint) from error
    made, text = scaffold(source, to=to)
    write_new(to, text, overwrite=force)
    output.line(f"wrote {to}")
    if source is not None:
        checked = {True: "unique in every row", False: "NOT UNIQUE: name other columns", None: "not checked"}
        output.line(f"  proposed key of {made.pipeline}: {', '.join(made.key)} ({checked[made.key_unique]})")
    output.line("next:")
    if made.feed_on is False:
        output.line(f"  deltarelay feed enable {source.address if source else ''}   (its change feed is off)")
    _finish(output, made, to)


def _write_for_many(output: Output, pattern: str, to: Path, *, overwrite: bool) -> None:
    from infra.scaffold import refuse_existing, write_new
    from infra.scaffold_tables import propose_tables, scaffold_tables

    refuse_existing(to, overwrite=overwrite)  # before minutes of reading

    def report_progress(done: int, total: int) -> None:
        if done % _TABLES_PER_NOTE == 0 or done == total:
            output.note(f"{done} of {format_count(total, 'table')} read")

    pattern, tables, excluded = propose_tables(pattern, report_progress)
    made, text = scaffold_tables(pattern, tables, excluded, to=to)
    write_new(to, text, overwrite=overwrite)
    output.line(f"wrote {to}")
    default = [one for one in tables if one.key and one.key == made.key]
    others = [one for one in tables if one.key and one.key != made.key]
    output.line(
        f"  {format_count(len(tables), 'table')}: {len(default)} with the key {', '.join(made.key) or '-'}, "
        f"{len(others)} with another key, {len(made.without_key)} WITHOUT A KEY"
    )
    if made.without_key:
        output.line(f"  name their keys in {to}, or move them to `exclude`: {list_some(made.without_key, 20)}")
    if made.not_checked:
        output.line(f"  these keys were not checked: {list_some(made.not_checked, 20)}")
    if excluded:
        output.line(f"  EXCLUDED because of their names: {list_some(excluded, 20)}")
    feeds_off = [one.table for one in tables if one.feed_on is False]
    output.line("next:")
    if feeds_off:
        output.line(f"  deltarelay feed enable TABLE   (the change feed is off: {list_some(feeds_off, 20)})")
    _finish(output, made, to)


def _finish(output: Output, made: Scaffold | TablesScaffold, to: Path) -> None:
    """Print the last of the next steps, and the result."""
    output.line(f"  export {made.variable}='postgresql://user:password@host:5432/database'")
    output.line("  deltarelay validate --connect" + ("" if to == DEFAULT_CONFIG else f" --config {to}"))
    output.result(made)

"""``deltarelay init``: writes a configuration file to start from. Starts no JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.options import DEFAULT_CONFIG, Debug, Json
from infra.output import Output

__all__ = ["init"]


def init(
    table: Annotated[
        str | None,
        typer.Argument(help="Path or URL of an existing Delta table; without it, the file contains an example."),
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The file to write.")] = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a commented configuration file, with the columns of a table and a proposed key."""
    from infra.config.values import resolve_table
    from infra.diagnostics.delta_table import is_catalog_name, open_source
    from infra.s3.address import is_s3
    from infra.scaffold import scaffold, write_new

    output = Output("init", as_json, debug)
    source = None
    if table is not None:
        try:
            written = resolve_table(table, None)
        except ValueError as error:  # `validate` would report the same problem later
            raise ConfigError(f"the table's address {error}", hint="name the folder that contains _delta_log") from None
        # A bare folder name is accepted as a path on the command line; in the file it would be a catalog name
        is_local = is_catalog_name(table) and Path(table).is_dir()
        source = open_source(f"./{table}" if is_local else written if is_s3(table) else table)
    made, text = scaffold(source, to=to)
    write_new(to, text, overwrite=force)
    output.line(f"wrote {to}")
    if source is not None:
        checked = {True: "unique in every row", False: "NOT UNIQUE: name other columns", None: "not checked"}
        output.line(f"  proposed key of {made.pipeline}: {', '.join(made.key)} ({checked[made.key_unique]})")
    output.line("next:")
    if made.feed_on is False:
        output.line(f"  deltarelay feed enable {source.address if source else ''}   (its change feed is off)")
    output.line(f"  export {made.variable}='postgresql://user:password@host:5432/database'")
    output.line("  deltarelay validate --connect" + ("" if to == DEFAULT_CONFIG else f" --config {to}"))
    output.result(made)

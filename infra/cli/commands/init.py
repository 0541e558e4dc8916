"""``deltarelay init``: a configuration file to begin with. No JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.session import DEFAULT_CONFIG, Debug, Json
from infra.output import Output

__all__ = ["init"]


def init(
    table: Annotated[
        str | None,
        typer.Argument(help="Path or URL of an existing Delta table; without it, the file holds an example."),
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The file to write.")] = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a commented configuration file, with the columns of a table and a proposal for its key."""
    from infra.config.values import resolve_table
    from infra.diagnostics.delta_table import is_catalog_name, open_source
    from infra.s3.address import is_s3
    from infra.scaffold import scaffold, write_new

    output = Output("init", as_json, debug)
    source = None
    if table is not None:
        try:
            written = resolve_table(table, None)
        except ValueError as error:  # what `validate` would say of it
            raise ConfigError(f"the table's address {error}", hint="name the folder that holds _delta_log") from None
        # In the folder itself a table's name is as good as a path, here but not in the file
        local = is_catalog_name(table) and Path(table).is_dir()
        source = open_source(f"./{table}" if local else written if is_s3(table) else table)
    made, text = scaffold(source, to=to)
    write_new(to, text, overwrite=force)
    output.line(f"wrote {to}")
    if source is not None:
        checked = {True: "unique in every row", False: "NOT UNIQUE: name other columns", None: "not checked"}
        output.line(f"  key proposed for {made.pipeline}: {', '.join(made.key)} ({checked[made.key_unique]})")
    output.line("next:")
    if made.feed_on is False:
        output.line(f"  deltarelay feed enable {source.address if source else ''}   (its change feed is off)")
    output.line(f"  export {made.variable}='postgresql://user:password@host:5432/database'")
    output.line("  deltarelay validate --connect" + ("" if to == DEFAULT_CONFIG else f" --config {to}"))
    output.result(made)

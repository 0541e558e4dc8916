"""``audit sql``: a trail as a view of another engine. No JVM."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cdf.errors import CdfError
from infra.cli.commands.audit.common import One, loaded, trail_sink
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["sql"]


def sql(
    pipeline: One,
    engine: Annotated[
        Literal["spark", "delta-rs", "duckdb", "trino"], typer.Option("--for", help="The engine that is to read it.")
    ] = "spark",
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the SQL that joins a trail's tables into one view: each event with its row, and with what its commit says.

    What is sealed or erased is NULL there; a column `sealed_columns` names it.
    """
    from pyspark.sql.types import StructType

    from audit.encryption.decrypt import groups_in
    from audit.errors import unreadable
    from audit.queries.sql_export import view_sql

    output = Output("audit sql", as_json, debug)
    sink = trail_sink(loaded(config), pipeline)
    try:
        payload, columns = sink.columns()
        # It gets a column with the first row that is written to it: a view of others could not be made
        written = payload["row"].dataType
        shown = [one for one in columns if isinstance(written, StructType) and one.stored in written.names]
        text = view_sql(engine, sink.path, shown, name=pipeline, sealed=groups_in(payload))
    except CdfError:
        raise
    except Exception as error:
        raise unreadable(sink.path, error) from error
    output.line(text)
    output.result({"for": engine, "path": sink.path, "sql": text})

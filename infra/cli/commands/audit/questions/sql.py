"""``deltarelay audit sql``: a trail as a view of another query engine. Starts no JVM."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cdf.errors import CdfError
from infra.cli.commands.audit.options import TrailPipeline
from infra.cli.commands.audit.trails import build_trail_sink
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.output import Output

__all__ = ["sql"]


def sql(
    pipeline: TrailPipeline,
    engine: Annotated[
        Literal["spark", "delta-rs", "duckdb", "trino"], typer.Option("--for", help="The engine that runs the SQL.")
    ] = "spark",
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the SQL that joins a trail's tables into one view: each event with its row and the facts of its commit.

    Encrypted and erased values are NULL in the view; its column `sealed_columns` names the encrypted ones.
    """
    from pyspark.sql.types import StructType

    from audit.encryption.decrypt import schema_has_groups
    from audit.errors import unreadable_trail
    from audit.queries.sql_export import view_sql

    output = Output("audit sql", as_json, debug)
    sink = build_trail_sink(load_project(config), pipeline)
    try:
        payload, columns = sink.columns()
        # The payload table gets a column with the first row that has it; the view can only name existing columns
        row_type = payload["row"].dataType
        existing = [
            column for column in columns if isinstance(row_type, StructType) and column.stored in row_type.names
        ]
        text = view_sql(engine, sink.path, existing, name=pipeline, sealed=schema_has_groups(payload))
    except CdfError:
        raise
    except Exception as error:
        raise unreadable_trail(sink.path, error) from error
    output.line(text)
    output.result({"for": engine, "path": sink.path, "sql": text})

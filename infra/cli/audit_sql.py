"""``audit sql``: a trail as a view of another engine."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from infra.cli.audit_common import One, loaded, reading, trail_of
from infra.cli.context import DEFAULT_CONFIG, Config, Debug, Json, spark_session
from infra.cli.output import Output
from infra.interrupt import ctrl_c_counts

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
    from audit.keys.opening import has_groups
    from audit.sql import view_sql
    from audit.tables import PAYLOAD

    output = Output("audit sql", as_json, debug)
    project = loaded(config)
    with spark_session(output, project), ctrl_c_counts():
        trail = trail_of(project, pipeline)
        with reading(trail):
            payload = trail.there().read(PAYLOAD)
            # It gets a column with the first row that is written to it: a view of others could not be made
            written = payload.select("row.*").columns
            columns = [column for column in trail.columns() if column.stored in written]
            sealed = has_groups(payload)
        text = view_sql(engine, trail.path, columns, name=pipeline, sealed=sealed)
    output.line(text)
    output.result({"for": engine, "path": trail.path, "sql": text})

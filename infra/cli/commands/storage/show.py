"""``deltarelay storage show``: what the ``storage`` block means to Spark and to others. No JVM."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from infra.cli.output import Output
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json

__all__ = ["show"]


class Reader(StrEnum):
    spark = "spark"
    spark_submit = "spark-submit"
    databricks = "databricks"
    delta_rs = "delta-rs"


def show(
    reader: Annotated[Reader, typer.Option("--for", help="Who is to be told.")] = Reader.spark,
    table: Annotated[
        str | None,
        typer.Option("--table", help="For delta-rs: the table on S3; default: the first source of the file that is."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the settings for tables on S3 in the form that Spark, Databricks or delta-rs takes. Secrets are masked."""
    from cdf.errors import ConfigError
    from infra.config.load import load
    from infra.diagnostics.storage_settings import show_settings as shown
    from infra.s3.address import is_s3, normalize_address

    output = Output("storage show", as_json, debug)
    project = load(config, look_for_tables=False)
    sources = [one.source.table for one in project.pipelines.values() if is_s3(one.source.table)]
    if table is not None:
        if not is_s3(table):
            raise ConfigError(f"{table} is not on S3", hint="name it as s3a://BUCKET/PATH")
        sources = [normalize_address(table)]
    found = shown(project.storage, reader.value, addresses=sources)
    output.line(found.text)
    output.result(found)

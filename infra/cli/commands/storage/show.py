"""``deltarelay storage show``: the ``storage`` block as settings of Spark and other engines. Starts no JVM."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["show"]


class Reader(StrEnum):
    spark = "spark"
    spark_submit = "spark-submit"
    databricks = "databricks"
    delta_rs = "delta-rs"


def show(
    reader: Annotated[Reader, typer.Option("--for", help="The engine that uses the settings.")] = Reader.spark,
    table: Annotated[
        str | None,
        typer.Option("--table", help="For delta-rs: the table on S3; default: the first source on S3 in the file."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the settings for tables on S3 in the format of Spark, Databricks or delta-rs. Secrets are masked."""
    from infra.config.load import load
    from infra.diagnostics.storage_settings import show_settings as format_settings
    from infra.s3.address import is_s3, normalize_address

    output = Output("storage show", as_json, debug)
    project = load(config, look_for_tables=False)
    sources = [pipeline.source.table for pipeline in project.pipelines.values() if is_s3(pipeline.source.table)]
    if table is not None:
        if not is_s3(table):
            raise ConfigError(f"{table} is not on S3", hint="name it as s3a://BUCKET/PATH")
        sources = [normalize_address(table)]
    settings = format_settings(project.storage, reader.value, addresses=sources)
    output.line(settings.text)
    output.result(settings)

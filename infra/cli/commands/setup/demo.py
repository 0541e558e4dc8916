"""``deltarelay demo``: replication on this machine, shown step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.cli.options import Debug, Json
from infra.output import DIFFERENCE, DONE, Output

__all__ = ["demo"]


def demo(
    directory: Annotated[
        Path, typer.Option("--directory", "-d", help="The folder for the table, the database and the configuration.")
    ] = Path("deltarelay-demo"),
    s3: Annotated[
        bool, typer.Option("--s3", help="Store the table on a local S3 server (moto) that the demo starts.")
    ] = False,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Also send the changes to a topic of a local Kafka broker that the demo starts."),
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Only stop the servers of an earlier demo.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create a Delta table with a history, replicate it window by window into a real PostgreSQL, and compare the two.

    Everything is in one folder; an earlier demo in it is replaced. The servers keep running afterwards.
    """
    from functools import partial

    from infra.demo import Runtime, run_demo, stop_demo
    from infra.runtime import build_pipeline, spark_session

    output = Output("demo", as_json, debug)
    if stop:
        output.result(stop_demo(output, directory))
        return
    runtime = Runtime(partial(spark_session, output), build_pipeline)
    result = run_demo(output, directory, runtime, on_s3=s3, with_kafka=kafka)
    output.finish(result, DONE if result.equal else DIFFERENCE)

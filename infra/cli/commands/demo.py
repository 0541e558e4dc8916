"""``deltarelay demo``: the whole story on this machine, in one command."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from infra.cli.output import DIFFERENCE, DONE, Output
from infra.cli.session import Debug, Json, build_pipeline, spark_session

__all__ = ["demo"]


def demo(
    directory: Annotated[
        Path,
        typer.Option("--directory", "-d", help="Where the demo puts its table, its database and its configuration."),
    ] = Path("deltarelay-demo"),
    s3: Annotated[
        bool, typer.Option("--s3", help="Put the table on S3: a server on this machine (moto), started for the demo.")
    ] = False,
    kafka: Annotated[
        bool,
        typer.Option(
            "--kafka", help="Send the changes to a topic too: a Kafka broker on this machine, started for the demo."
        ),
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Only stop the servers of an earlier demo.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a Delta table with a history, replicate it window by window into a real PostgreSQL, and compare the two.

    Everything is in one folder; a demo that is there already is replaced. The servers keep running afterwards.
    """
    from infra.demo import Runtime, run_demo, stop_demo

    output = Output("demo", as_json, debug)
    if stop:
        output.result(stop_demo(output, directory))
        return
    runtime = Runtime(partial(spark_session, output), build_pipeline)
    result = run_demo(output, directory, runtime, on_s3=s3, with_kafka=kafka)
    code = DONE if result.equal else DIFFERENCE
    output.result(result, exit_code=code)
    raise typer.Exit(code)

"""``deltarelay jars``: the jars that Delta needs, for machines with and without a way to a registry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import DONE, FAILED, Output
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json
from infra.temporary import private_folder

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.spark.jars import JarSet

__all__ = ["app"]

app = typer.Typer(help="List, check and fetch the jars that Delta needs.", no_args_is_help=True)


def _project(config: Path) -> Project | None:
    if config == DEFAULT_CONFIG and not config.exists():
        return None
    from infra.config.load import load

    return load(config, look_for_tables=False)


@app.command("list")
def list_jars(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Show what the installed PySpark and delta-spark need, and the files that are there for it. No JVM."""
    from infra.config.models import storage_of
    from infra.s3.packages import list_packages
    from infra.spark.jars import find_cached_jars, ivy_folder, user_home
    from infra.spark.session_builder import delta_package, find_jar_files

    output = Output("jars list", as_json, debug)
    project = _project(config)
    storage = storage_of(project)
    given = find_jar_files(list(project.jars) or None if project else None, os.environ)
    if given:
        origin, files = "path", [(name, _bytes(name)) for name in given]
    else:
        ivy = ivy_folder(user_home(), project.spark.settings() if project else None)
        files = [(jar.file, jar.bytes) for jar in find_cached_jars(ivy, storage)]
        origin = "ivy" if files else "none"
    output.line(f"needed: {delta_package()}, and what it depends on (without its Hadoop clients: PySpark has one)")
    s3 = list_packages(storage) if storage is not None else []
    if s3:
        output.line(f"for tables on S3: {', '.join(s3)}")
    if origin == "none":
        output.line("not on this machine yet: Spark fetches it on the first start, or `deltarelay jars fetch DIR` now")
    else:
        output.line("given by path:" if origin == "path" else "fetched by Spark's Ivy; Delta's own jars of these:")
        output.table(("file", "bytes"), files, numbers=("bytes",))
    jars = [{"file": name, "bytes": size} for name, size in files]
    output.result({"package": delta_package(), "s3_packages": s3, "origin": origin, "jars": jars})


@app.command()
def check(
    directory: Annotated[
        Path | None, typer.Argument(help="A folder of jars; default: the jars of the file or of DELTARELAY_JARS.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say whether jars given by path are all that is needed, in the right version. No JVM; exit 1 if they are not."""
    from cdf.errors import ConfigError
    from infra.config.models import storage_of
    from infra.spark.jars import examine_jars
    from infra.spark.session_builder import find_jar_files

    output = Output("jars check", as_json, debug)
    project = _project(config)
    named = [directory] if directory is not None else list(project.jars) or None if project else None
    files = [name for name in find_jar_files(named, os.environ) if "://" not in name]
    if not files:
        raise ConfigError(
            "no jars are given by path, so there is nothing to check: Spark fetches its own",
            hint="name a folder, or set jars: in the configuration file or DELTARELAY_JARS",
        )
    _end(output, examine_jars(files, storage_of(project)))


@app.command()
def fetch(
    directory: Annotated[Path, typer.Argument(help="The folder to copy the jars into; made if it is missing.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fetch the jars by Spark's own Ivy and copy them into a folder: for `jars:`, or DELTARELAY_JARS, elsewhere."""
    from infra.config.models import storage_of
    from infra.spark.jars import fetch_jars as fetch_jars

    output = Output("jars fetch", as_json, debug)
    project = _project(config)
    log_file = private_folder() / f"ivy-{os.getpid()}.log"
    output.note("starting Spark's Ivy …")
    conf = project.spark.settings() if project else None
    found = fetch_jars(directory, conf=conf, log_file=log_file, storage=storage_of(project))
    if not debug:
        log_file.unlink(missing_ok=True)
    output.line(f"use them with `jars: [{directory.absolute()}]` in deltarelay.yaml, or DELTARELAY_JARS")
    _end(output, found)


def _end(output: Output, found: JarSet) -> None:
    output.line(f"{len(found.jars)} jars, {found.total_bytes / 1e6:,.1f} MB, for {found.package}")
    for problem in found.problems:
        output.line(f"  problem: {problem}")
    if not found.problems:
        output.line("  all that is needed is there")
    code = FAILED if found.problems else DONE
    output.result(found, exit_code=code)
    raise typer.Exit(code)


def _bytes(name: str) -> int | None:
    return None if "://" in name else Path(name).stat().st_size

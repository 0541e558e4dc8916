"""``deltarelay jars``: the jars that Delta needs, for machines with and without access to a Maven repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from cdf.extras import require_extra
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_optional_project
from infra.output import DONE, FAILED, Output
from infra.temporary import private_folder

if TYPE_CHECKING:
    from infra.spark.jars import JarSet

__all__ = ["app"]

app = typer.Typer(help="List, check and fetch the jars that Delta needs.", no_args_is_help=True)


@app.command("list")
def list_jars(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Show the jars that the installed PySpark and delta-spark need, and those on this machine. Starts no JVM."""
    from infra.config.models import storage_of
    from infra.s3.packages import list_packages
    from infra.spark.jars import find_cached_jars, ivy_folder, user_home
    from infra.spark.session_builder import find_jar_files
    from infra.spark_pairs import delta_package

    output = Output("jars list", as_json, debug)
    project = load_optional_project(config)
    storage = storage_of(project)
    given = find_jar_files(list(project.jars) or None if project else None, os.environ)
    if given:
        origin, files = "path", [(name, _file_size(name)) for name in given]
    else:
        ivy = ivy_folder(user_home(), project.spark.settings() if project else None)
        files = [(jar.file, jar.bytes) for jar in find_cached_jars(ivy, storage)]
        origin = "ivy" if files else "none"
    output.line(f"required: {delta_package()} and its dependencies (without Hadoop clients: PySpark includes them)")
    s3 = list_packages(storage) if storage is not None else []
    if s3:
        output.line(f"for tables on S3: {', '.join(s3)}")
    if origin == "none":
        output.line("not on this machine yet: Spark fetches it on the first start, or `deltarelay jars fetch DIR` now")
    else:
        output.line(
            "given by path:" if origin == "path" else "fetched by Spark's Ivy (only Delta's own jars are listed):"
        )
        output.table(("file", "bytes"), files, numbers=("bytes",))
    jars = [{"file": name, "bytes": size} for name, size in files]
    output.result({"package": delta_package(), "s3_packages": s3, "origin": origin, "jars": jars})


@app.command()
def check(
    directory: Annotated[
        Path | None,
        typer.Argument(help="A folder of jars; default: the jars of the configuration file or of DELTARELAY_JARS."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that the jars given by path are complete and have the right versions. Starts no JVM.

    Exit code 1: a jar is missing or has the wrong version.
    """
    from infra.config.models import storage_of
    from infra.spark.jars import examine_jars
    from infra.spark.session_builder import find_jar_files

    output = Output("jars check", as_json, debug)
    project = load_optional_project(config)
    folders = [directory] if directory is not None else list(project.jars) or None if project else None
    files = [name for name in find_jar_files(folders, os.environ) if "://" not in name]
    if not files:
        raise ConfigError(
            "no jars are given by path, so there is nothing to check: Spark fetches its own",
            hint="name a folder, or set jars: in the configuration file or DELTARELAY_JARS",
        )
    _finish(output, examine_jars(files, storage_of(project)))


@app.command()
def fetch(
    directory: Annotated[Path, typer.Argument(help="The folder to copy the jars into; created if it is missing.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fetch the jars with Spark's own Ivy and copy them into a folder, to use with `jars:` or DELTARELAY_JARS."""
    from infra.config.models import storage_of
    from infra.spark.jars import fetch_jars

    output = Output("jars fetch", as_json, debug)
    project = load_optional_project(config)
    log_file = private_folder() / f"ivy-{os.getpid()}.log"
    output.note("starting Spark's Ivy …")
    conf = project.spark.settings() if project else None
    jars = fetch_jars(directory, conf=conf, log_file=log_file, storage=storage_of(project))
    if not debug:
        log_file.unlink(missing_ok=True)
    output.line(f"use them with `jars: [{directory.absolute()}]` in deltarelay.yaml, or with DELTARELAY_JARS")
    _finish(output, jars)


@app.command()
def archive(as_json: Json = False, debug: Debug = False) -> None:
    """Write an archive of the classes that Spark loads at its start: each later command that needs Spark starts faster.

    It has about 180 MB, in `~/.cache/deltarelay` (or `XDG_CACHE_HOME`), and fits only this Java, PySpark and Delta: write it
    again after an update. `deltarelay doctor` shows whether there is one.
    """
    from infra.spark.archive_writer import write_archive
    from infra.spark.java import require_java

    output = Output("jars archive", as_json, debug)
    require_extra("spark")
    log_file = private_folder() / f"archive-{os.getpid()}.log"
    output.note("starting Spark once, and writing its classes; this takes about a minute …")
    file = write_archive(require_java(), log_file)
    if not debug:
        log_file.unlink(missing_ok=True)
    size = file.stat().st_size
    output.line(f"{file}, {size / 1e6:,.0f} MB")
    output.result({"file": str(file), "bytes": size})


def _finish(output: Output, jars: JarSet) -> None:
    output.line(f"{len(jars.jars)} jars, {jars.total_bytes / 1e6:,.1f} MB, for {jars.package}")
    for problem in jars.problems:
        output.line(f"  problem: {problem}")
    if not jars.problems:
        output.line("  complete")
    output.finish(jars, FAILED if jars.problems else DONE)


def _file_size(name: str) -> int | None:
    return None if "://" in name else Path(name).stat().st_size

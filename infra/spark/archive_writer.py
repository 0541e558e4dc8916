"""Writes the archive of Spark's classes (``class_archive``)."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError
from cdf.testing import MemorySink
from infra.spark.class_archive import OPTIONS_VARIABLE, QUIET, archive_file
from infra.spark.session_builder import session
from infra.temporary import find_folder_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.spark.java import Java

__all__ = ["load_classes", "write_archive"]

_TABLE_EXAMPLE = (
    "update {0} set name = 'x' where id = 1",
    "delete from {0} where id = 2",
    "merge into {0} t using (select 3 as k union all select 30) s on t.id = s.k"
    " when matched then update set name = 'y' when not matched then insert (id, name) values (k, 'z')",
    "optimize {0}",
)
SECONDS_TO_WRITE = 600
_ON_CLASS_PATH = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Folders that Spark adds to Java's class path. Java archives no classes if one of them holds a file."""


def write_archive(java: Java, log_file: Path) -> Path:
    """Start Spark once, use a little of everything, and have Java write the archive when it ends.

    Replaces former archives of this Java and PySpark.
    """
    _check_class_path()
    try:
        file = archive_file(java)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        problem = find_folder_problem(file.parent)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"the cache folder cannot be written ({type(error).__name__})",
            hint="set XDG_CACHE_HOME to a folder of your own",
        ) from error
    if problem is not None:
        raise ConfigError(
            f"the cache folder {file.parent} {problem}", hint="set XDG_CACHE_HOME to a folder of your own"
        )
    new, options = file.with_suffix(f".{os.getpid()}"), os.environ.get(OPTIONS_VARIABLE)
    try:
        os.environ[OPTIONS_VARIABLE] = f'{options or ""} "-XX:ArchiveClassesAtExit={new}" {QUIET}'
        with tempfile.TemporaryDirectory() as folder:
            load_classes(Path(folder), log_file)
        if not new.exists():
            raise ConfigError(
                "Java wrote no archive of its classes", hint=f"check the free space of {file.parent}; see {log_file}"
            )
        new.rename(file)
    finally:
        new.unlink(missing_ok=True)
        if options is None:
            del os.environ[OPTIONS_VARIABLE]
        else:
            os.environ[OPTIONS_VARIABLE] = options
    _remove_former(file)
    return file


def _check_class_path() -> None:
    for name in _ON_CLASS_PATH:
        folder = os.environ.get(name)
        if folder and Path(folder).is_dir() and any(Path(folder).iterdir()):
            raise ConfigError(
                f"Java archives no classes while {name} names a folder with files",
                hint=f"unset {name}, and start from the archive only commands without it: Java ignores it in others",
            )


def _remove_former(file: Path) -> None:
    """Remove earlier archives, and what a killed command left; not what another command is writing now."""
    for former in file.parent.glob(f"{file.name.rpartition('-')[0]}-*"):
        with suppress(FileNotFoundError):
            is_written = former.suffix != ".jsa" and time.time() - former.stat().st_mtime < SECONDS_TO_WRITE
            if former != file and not is_written:
                former.unlink()


def load_classes(folder: Path, log_file: Path) -> None:
    """Let a Spark of this process load the classes of a typical command, and wait until its Java has ended."""
    spark = session(
        app_name="class archive", conf={"spark.sql.warehouse.dir": str(folder / "warehouse")}, log_file=log_file
    )
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    try:
        _use_spark(spark, str(folder / "table"))
        spark.stop()
        gateway.shutdown()
        java.stdin.close()
        code = java.wait(SECONDS_TO_WRITE)  # it writes the archive before it ends
    except BaseException:
        java.kill()  # it would write the archive later
        java.wait()
        raise
    if code != 0:
        raise ConfigError(f"Java ended with {code} while it wrote the archive", hint=f"see {log_file}")


def _use_spark(spark: SparkSession, path: str) -> None:
    table = f"delta.`{path}`"
    spark.sql(
        f"create table {table} (id bigint, name string, at timestamp) using delta"
        " tblproperties (delta.enableChangeDataFeed = true)"
    )
    spark.sql(f"insert into {table} select id, concat('n', id), current_timestamp() from range(10)")
    pipeline = Pipeline(ChangeFeed(spark, path), MemorySink(), key=("id",), name="archive")
    pipeline.run()
    for statement in _TABLE_EXAMPLE:
        spark.sql(statement.format(table))
    pipeline.run()

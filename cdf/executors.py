"""Whether the Python on the executors of a cluster can run a sink's tasks, and one error that says what it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from cdf.errors import ConfigError
from cdf.session import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["check_executors", "explain_worker_failure"]

_OURS = ("audit", "cdf", "connectors", "deltarelay", "infra")
_DISTRIBUTION = "deltarelay"
_HINT = (
    "the Python of the workers must be an environment with deltarelay and its dependencies, of the driver's minor version, "
    "at the same path on every worker: name it in PYSPARK_PYTHON, or in the Spark setting spark.pyspark.python of "
    "deltarelay.yaml (docs/deploy/spark-cluster.md)"
)
_ROWS = 1000
"""More rows than a cluster has cores, so that every core gets a task."""
_REPORT = "module string, version string, python string, host string"

_OTHER_VERSION = re.compile(r"worker has different version:? \(?([\d., ]+)\)? than that in driver:? \(?([\d., ]+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

_checked: set[tuple[str, tuple[str, ...]]] = set()
"""Applications of Spark whose executors have been checked, and for which modules."""


def check_executors(spark: SparkSession, modules: Sequence[str]) -> None:
    """Raise ConfigError if the executors cannot import ``modules``, which tasks need, or have another release of ours.

    Runs one small job on a cluster, once for each application; does nothing where tasks run with the Python of the driver.
    """
    is_local = re.match(r"local(\[|$)", str(spark.conf.get("spark.master", "local"))) is not None
    if not modules or (is_local and not is_connect(spark)):
        return
    checked = (str(spark.conf.get("spark.app.id", "")), tuple(modules))
    if checked in _checked:
        return
    try:
        rows = spark.range(_ROWS).mapInArrow(_make_probe(modules), _REPORT).distinct().collect()
    except Exception as error:
        if (explained := explain_worker_failure(error)) is None:
            raise
        raise explained from error
    release = _find_release()
    for row in rows:
        if row.module is not None:
            raise _missing_module(row.module, f"{row.python} on {row.host}")
        if None not in (row.version, release) and row.version != release:
            raise ConfigError(
                f"the executors have deltarelay {row.version} ({row.python} on {row.host}), the driver has {release}",
                hint="install the driver's release in the Python environment of the workers",
            )
    _checked.add(checked)


def explain_worker_failure(error: Exception) -> ConfigError | None:
    """The error for a Spark job whose Python workers could not start, or could not import a module; None for any other."""
    text = str(error)
    if found := _OTHER_VERSION.search(text):
        theirs, ours = (".".join(re.findall(r"\d+", one)) for one in found.groups())
        return ConfigError(f"the executors have Python {theirs}, and the driver has Python {ours}", hint=_HINT)
    if found := _NO_PROGRAM.search(text):
        return ConfigError(f"the executors cannot start Python: there is no {found.group(1)}", hint=_HINT)
    if found := _NO_MODULE.search(text):
        return _missing_module(found.group(1), "the Python of the executors")
    return None


def _missing_module(module: str, python: str) -> ConfigError:
    name = module.partition(".")[0]
    missing = "deltarelay is not installed" if name in _OURS else f"the module {name} is missing"
    return ConfigError(f"{missing} on the executors ({python}): they cannot run a task of this pipeline", hint=_HINT)


def _find_release() -> str | None:
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:  # a source tree
        return None


def _make_probe(modules: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that Spark sends by value: it must need nothing but Python and pyarrow."""
    names, distribution, package = [*modules], _DISTRIBUTION, "cdf"

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import socket
        import sys
        from contextlib import suppress
        from importlib import metadata

        import pyarrow as pa

        for _ in batches:
            pass
        report = {"module": None, "version": None, "python": sys.executable, "host": socket.gethostname()}
        for name in (package, *names):
            try:
                importlib.import_module(name)
            except ImportError as error:
                report["module"] = error.name or name
                break
        with suppress(metadata.PackageNotFoundError):
            report["version"] = metadata.version(distribution)
        yield pa.RecordBatch.from_pylist([report], pa.schema([(column, pa.string()) for column in report]))

    return probe

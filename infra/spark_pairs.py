"""The pairs of Spark and Delta that deltarelay is tested with, and what belongs to each: Java, jars, Hadoop.

``make compat`` runs the tests on every pair. A release line includes its patch releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

__all__ = ["PAIRS", "Pair", "delta_artifacts", "delta_package", "installed_pair"]


@dataclass(frozen=True, slots=True)
class Pair:
    spark: str
    delta: str
    hadoop: str
    """The Hadoop client inside of PySpark."""
    aws_sdk: str | None
    """The second SDK of Amazon that this hadoop-aws is built with; None: it uses the first SDK. The registry has no
    transfer manager in 2.24.6, the one of Hadoop 3.4.1."""
    scala: str = "2.13"
    java: tuple[int, ...] = (17, 21)
    """The long-term support releases that both are built and tested with."""
    delta_lines: tuple[str, ...] = ()
    """Further release lines of Delta that have jars for this Spark; not tested."""
    ivy_folder: str = ".ivy2.5.2"

    @property
    def line(self) -> str:
        return _line(self.spark)

    @property
    def delta_line(self) -> str:
        return _line(self.delta)

    @property
    def delta_package(self) -> str:
        return delta_package(self.spark, self.delta)

    def fits(self, delta: str) -> bool:
        """Whether this release of Delta has jars for this Spark."""
        return _line(delta) in (self.delta_line, *self.delta_lines)


PAIRS = (
    Pair("4.2.0", "4.4.0", "3.5.0", "2.35.4"),
    Pair("4.1.1", "4.3.1", "3.4.2", "2.29.52", delta_lines=("4.1", "4.2", "4.4")),
    Pair("4.0.1", "4.0.1", "3.4.1", "2.25.53", delta_lines=("4.1", "4.2", "4.3", "4.4")),
    Pair("3.5.9", "3.3.3", "3.3.4", None, scala="2.12", java=(17,), ivy_folder=".ivy2"),
)
"""The newest first: the one that ``pip install 'deltarelay[spark]'`` chooses."""


def installed_pair(installed: Callable[[str], str] = metadata.version) -> Pair:
    """The pair of the installed PySpark; the newest where there is no PySpark, or a release that is not known."""
    try:
        line = _line(installed("pyspark"))
    except metadata.PackageNotFoundError:
        return PAIRS[0]
    return next((pair for pair in PAIRS if pair.line == line), PAIRS[0])


def delta_package(pyspark: str | None = None, delta: str | None = None) -> str:
    """The Maven coordinate of Delta's jars for these releases, by default for the installed ones."""
    line, delta = _line(pyspark or metadata.version("pyspark")), delta or metadata.version("delta-spark")
    scala = next((pair.scala for pair in PAIRS if pair.line == line), "2.13")
    # Since 4.1 Delta has a build for each Spark release
    build = f"{line}_{scala}" if _number(delta) >= (4, 1) else scala
    return f"io.delta:delta-spark_{build}:{delta}"


def delta_artifacts(delta: str | None = None) -> tuple[str, ...]:
    """Dependencies of ``delta-spark``, with the same version."""
    kernel = ("delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
    return ("delta-storage", *(kernel if _number(delta or metadata.version("delta-spark")) >= (4, 2) else ()))


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])

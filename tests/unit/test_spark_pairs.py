"""The pairs of Spark and Delta: their jars, and which pairs ``doctor`` reports."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

import pytest

from infra.diagnostics.doctor.machine import Machine, check_packages
from infra.spark_pairs import PAIRS, Pair, delta_artifacts, delta_package, installed_pair


def installs(pyspark: str | None, delta: str | None = None) -> Callable[[str], str]:
    found = {"pyspark": pyspark, "delta-spark": delta}

    def version(name: str) -> str:
        if (known := found[name]) is None:
            raise metadata.PackageNotFoundError(name)
        return known

    return version


@pytest.mark.parametrize(
    ("pyspark", "delta", "package"),
    [
        ("3.5.9", "3.3.3", "io.delta:delta-spark_2.12:3.3.3"),
        ("4.0.1", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.1", "4.1.0", "io.delta:delta-spark_4.0_2.13:4.1.0"),
        ("4.1.1", "4.3.1", "io.delta:delta-spark_4.1_2.13:4.3.1"),
        ("4.2.0", "4.4.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_delta_has_a_build_for_each_spark(pyspark: str, delta: str, package: str) -> None:
    assert delta_package(pyspark, delta) == package


def test_the_kernel_belongs_to_delta_since_4_2() -> None:
    assert delta_artifacts("4.0.1") == ("delta-storage",)
    assert len(delta_artifacts("4.3.1")) == 4


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.line)
def test_each_pair_is_found_by_its_pyspark_and_is_in_order(pair: Pair) -> None:
    assert installed_pair(installs(pair.spark)) is pair
    found = check_packages(Machine(installed=installs(pair.spark, pair.delta)))
    assert (found.state, found.found) == ("ok", f"pyspark {pair.spark}, delta-spark {pair.delta}")


@pytest.mark.parametrize("pyspark", [None, "5.0.0"])
def test_without_a_known_pyspark_the_newest_pair_counts(pyspark: str | None) -> None:
    assert installed_pair(installs(pyspark)) is PAIRS[0]


@pytest.mark.parametrize(
    ("pyspark", "delta", "state", "says", "fix"),
    [
        ("4.1.1", "4.4.0", "warning", "is not tested with this pair", "pyspark==4.1.1 delta-spark==4.3.1"),
        ("3.5.9", "4.0.1", "failed", "this Delta has no jars for Spark 3.5", "pyspark==3.5.9 delta-spark==3.3.3"),
        ("4.2.0", "4.3.1", "failed", "this Delta has no jars for Spark 4.2", "pyspark==4.2.0 delta-spark==4.4.0"),
        ("4.3.0", "4.4.0", "failed", "4.2 with Delta 4.4, 4.1 with Delta 4.3", "pyspark==4.2.0 delta-spark==4.4.0"),
        ("3.5.9", None, "failed", "delta-spark is not installed", "deltarelay[spark]"),
    ],
)
def test_another_pair_is_named(pyspark: str, delta: str | None, state: str, says: str, fix: str) -> None:
    found = check_packages(Machine(installed=installs(pyspark, delta)))
    assert found.state == state
    assert says in found.found
    assert found.fix is not None
    assert fix in found.fix

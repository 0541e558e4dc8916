"""The pairs of Spark and Delta: their jars, and which pairs ``doctor`` reports."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

import pytest

from cdf.errors import ConfigError
from infra.diagnostics.doctor.machine import Machine, check_packages
from infra.s3 import packages, spark_settings
from infra.s3.model import Storage
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


# ── S3 with Hadoop 3.3, inside of PySpark 3.5 ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def oldest_pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    for module in (packages, spark_settings):
        monkeypatch.setattr(module, "installed_pair", lambda: PAIRS[-1])
    return PAIRS[-1]


def storage(**s3: str) -> Storage:
    return Storage.model_validate({"s3": {"region": "eu-west-1", **s3}})


def test_the_oldest_pair_gets_the_first_sdk_without_its_bundle(oldest_pair: Pair) -> None:
    assert oldest_pair.aws_sdk is None
    names = [package.split(":")[1] for package in packages.list_packages(storage())]
    assert names == ["hadoop-aws", "aws-java-sdk-s3", "aws-java-sdk-sts", "aws-java-sdk-dynamodb"]
    assert "com.amazonaws:aws-java-sdk-bundle" in packages.list_excludes(storage())
    conf = spark_settings.spark_conf(storage(credentials="env"))
    provider = "com.amazonaws.auth.EnvironmentVariableCredentialsProvider"
    assert conf["spark.hadoop.fs.s3a.aws.credentials.provider"] == provider


@pytest.mark.usefixtures("oldest_pair")
def test_a_profile_is_refused_by_name_where_hadoop_cannot_name_one() -> None:
    with pytest.raises(ConfigError, match=r"profile:lake: Hadoop 3\.3\.4, inside of PySpark 3\.5") as caught:
        spark_settings.spark_conf(storage(credentials="profile:lake"))
    assert caught.value.hint == "set AWS_PROFILE=lake and no `credentials`, or use PySpark 4.0 or newer"

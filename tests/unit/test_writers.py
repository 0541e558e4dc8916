"""Who may write to S3, as a decision: by the session's settings and the place. (With a real S3: test_s3_source.py.)"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cdf.errors import ConfigError
from cdf.source.single_writer import require_writer

LOCK_STORE = "io.delta.storage.S3DynamoDBLogStore"


def session(settings: Mapping[str, str] | None = None, *, databases: Mapping[str, str] | None = None) -> Any:
    found = dict(settings or {})
    places = {"default": "file:/warehouse", **(databases or {})}
    return SimpleNamespace(
        conf=SimpleNamespace(get=lambda name, default=None: found.get(name, default)),
        catalog=SimpleNamespace(
            currentDatabase=lambda: "default",
            getDatabase=lambda name: SimpleNamespace(locationUri=places[name]),
        ),
    )


def refusal(spark: Any, location: str) -> str:
    """Empty where the session may write there."""
    try:
        require_writer(spark, location)
    except ConfigError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    "location", ["/data/t", "file:/data/t", "hdfs://n/t", "abfss://c@a/t", "orders", "shop.orders"]
)
def test_elsewhere_anybody_may(location: str) -> None:
    assert refusal(session(databases={"shop": "file:/shop"}), location) == ""


@pytest.mark.parametrize(
    "location", ["s3a://b/t", "s3://b/t", "S3A://b/t", "s3n://b/t", "lake.orders", "spark_catalog.lake.orders"]
)
def test_on_s3_nobody_may_by_default(location: str) -> None:
    assert "nothing is written" in refusal(session(databases={"lake": "s3a://b/lake"}), location)


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.deltarelay.commits": "single_writer"},
        {"spark.delta.logStore.s3a.impl": LOCK_STORE},
        {"spark.delta.logStore.class": "somebody.elses.Store"},
        {"spark.databricks.clusterUsageTags.clusterId": "1"},
    ],
)
def test_what_keeps_writers_apart(settings: dict[str, str]) -> None:
    assert refusal(session(), "s3a://b/t") != ""
    assert refusal(session(settings), "s3a://b/t") == ""


def test_the_lock_is_by_spelling() -> None:
    settings = {f"spark.delta.logStore.{scheme}.impl": LOCK_STORE for scheme in ("s3", "s3a", "s3n")}
    assert refusal(session(settings), "s3a://b/t") == ""
    for location in ("s3://b/t", "s3n://b/t"):
        assert "another lock" in refusal(session(settings), location)

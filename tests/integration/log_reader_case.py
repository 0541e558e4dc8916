"""What the tests of the two log readers share: a log read with public means, and everything that a log can be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf.errors import CdfError
from cdf.source.log import TableLog

__all__ = ["describe_log", "public_means"]


@contextmanager
def public_means() -> Iterator[None]:
    """In the block no session seems to reach Delta's classes: feeds and logs that are opened in it use public means."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("log", "table_handle"):
            patch.setattr(f"cdf.source.{module}.has_delta_classes", lambda _: False)
        yield


def describe_log(
    spark: SparkSession, location: str, *, public: bool, versions: Sequence[int] | None = None
) -> dict[str, Any]:
    """Every answer about a table's log, errors as well. ``versions``: which ones are asked about one by one."""
    if public:
        with public_means():
            log = TableLog(spark, location)
    else:
        log = TableLog(spark, location)
    latest = log.latest()
    found: dict[str, Any] = {
        "latest": latest,
        "again": log.latest(refresh=False),
        "listing": log.listing(),
        "readable": log.listing().readable,
        "gaps": log.listing().gaps,
        "times": dict(log.times()),
        "files": dict(log.files(0, latest + 2)),
        "now": log.metadata(),
        "protocol": log._snapshots.read_latest().protocol,
        "transactions": [log.transaction(name) for name in ("job", "other", "none")],
        "metadata commits": log.metadata_commits(0, latest),
        "all metadata commits": log.metadata_commits(0, latest + 60),
        "named": log.versions_naming("marked", 0, latest),
        "all named": log.versions_naming("marked", 0, latest + 60),
    }
    for version in range(latest + 2) if versions is None else versions:
        found[f"sha256 of {version}"] = _answer(lambda v=version: log.sha256(v))
        found[f"commit {version}"] = _answer(lambda v=version: list(log.commits(v, v)))
        if version <= latest:
            found[f"metadata of {version}"] = _answer(lambda v=version: log.metadata(v))
            found[f"size of {version}"] = _answer(lambda v=version: log.size_bytes(v))
    found["commits"] = _answer(lambda: list(log.commits(0, latest)))
    return found


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except CdfError as error:
        return type(error), error.message

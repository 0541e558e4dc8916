"""Polling for new versions: which intervals are accepted, and which changes of the table open the sink again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from cdf.changes.commits import Metadata
from cdf.errors import ConfigError
from cdf.pipeline.polling import FeedPolls, _differs

FEED = {"delta.enableChangeDataFeed": "true"}
BEFORE = Metadata("id", StructType().add("id", "long").add("v", "string"), FEED)


def identity(mark: int) -> StructType:
    """Delta notes the highest value that an identity column has reached."""
    return StructType().add("id", "long", True, {"delta.identity.highWaterMark": mark}).add("v", "string")


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (BEFORE, False),
        (replace(BEFORE, properties={**FEED, "team": "sales"}), False),
        (replace(BEFORE, schema=identity(7)), False),
        (replace(BEFORE, properties={}), True),
        (replace(BEFORE, table_id="another"), True),
        (replace(BEFORE, schema=StructType().add("id", "long").add("v", "string").add("w", "long")), True),
    ],
)
def test_what_opens_the_sink_again(now: Metadata, differs: bool) -> None:
    assert _differs(now, BEFORE) is differs


@pytest.mark.parametrize("interval", ["", "interval", "-1 second", "soon"])
def test_intervals_that_cannot_be_used(interval: str) -> None:
    log: Any = None
    with pytest.raises(ConfigError, match="interval"):
        FeedPolls(log, trigger={"processingTime": interval})

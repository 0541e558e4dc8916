"""Pauses and approvals of a trail, without a JVM: no decision is lost."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from audit.trail.controls import change_controls, read_controls
from cdf.errors import ConfigError, SinkUnavailable
from cdf.sink import Approval, Controls
from cdf.sink.controls import approve_window

NOW = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)


def test_decisions_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "trail")
    assert read_controls(path) == Controls()

    def decide(number: int) -> None:
        approval = Approval(number, number, "id", NOW, f"user {number}")
        change_controls(path, lambda controls: approve_window(controls, approval))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(decide, range(6)))
    found = read_controls(path)
    assert sorted(approval.first for approval in found.approvals) == [0, 1, 2, 3, 4, 5]
    assert len(found.records) == 6


def test_a_damaged_table_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    path = str(tmp_path / "trail")
    change_controls(path, lambda controls: controls)
    for data in (tmp_path / "trail" / "controls").glob("*.parquet"):
        data.write_bytes(b"damaged")
    with pytest.raises(SinkUnavailable, match="cannot be read"):
        read_controls(path)


def test_storage_that_delta_rs_cannot_reach() -> None:
    for path in ("hdfs://name/trail", "s3a://bucket/trail", "abfss://container@account/trail"):
        assert read_controls(path) == Controls()
    with pytest.raises(ConfigError, match="stores no pauses"):
        change_controls("hdfs://name/trail", lambda controls: controls)

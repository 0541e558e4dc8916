"""The position of a trail and when it moved, from the commits of a ledger that delta-rs has written. No Spark."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from audit.trail.position import read_position, read_position_and_time
from cdf.sink import Position


def append(trail: Path, **metadata: object) -> dt.datetime:
    """→ the time of the commit"""
    rows = pa.table({"version": pa.array([0], pa.int64()), "record": ["{}"]})
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)})
    write_deltalake(trail / "ledger", rows, mode="append", commit_properties=properties)
    time.sleep(0.005)  # the next commit has another millisecond
    (commit,) = DeltaTable(trail / "ledger").history(1)
    return dt.datetime.fromtimestamp(commit["timestamp"] / 1000, tz=dt.UTC)


def test_a_signature_or_an_idle_run_does_not_move_the_position(tmp_path: Path) -> None:
    assert read_position_and_time(str(tmp_path)) == (Position(None), None)
    append(tmp_path, state={"version": 3, "table_id": "id"})
    moved_at = append(tmp_path, state={"version": 4, "table_id": "id"})
    append(tmp_path, state={"version": 4, "table_id": "id"})  # a signed checkpoint
    append(tmp_path, opened=1)
    assert read_position_and_time(str(tmp_path)) == (Position(4, "id"), moved_at)
    assert read_position(str(tmp_path)) == Position(4, "id")

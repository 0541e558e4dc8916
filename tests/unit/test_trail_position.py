"""The position of a trail and when it moved, from the commits of a ledger that delta-rs has written. No Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from audit.trail.activity import read_activity
from audit.trail.position import read_position, read_position_and_times
from cdf.sink import Activity, Position


def append(trail: Path, **metadata: object) -> dt.datetime:
    """→ the time of the commit"""
    rows = pa.table({"version": pa.array([0], pa.int64()), "record": ["{}"]})
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)})
    write_deltalake(trail / "ledger", rows, mode="append", commit_properties=properties)
    time.sleep(0.005)  # the next commit has another millisecond
    (commit,) = DeltaTable(trail / "ledger").history(1)
    return dt.datetime.fromtimestamp(commit["timestamp"] / 1000, tz=dt.UTC)


def test_a_signature_or_an_idle_run_does_not_move_the_position(tmp_path: Path) -> None:
    assert read_position_and_times(str(tmp_path)) == Activity()
    append(tmp_path, state={"version": 3, "table_id": "id"})
    moved_at = append(tmp_path, state={"version": 4, "table_id": "id"})
    append(tmp_path, state={"version": 4, "table_id": "id"})  # a signed checkpoint
    opened_at = append(tmp_path, opened=1)
    found = Activity(Position(4, "id"), moved_at, runner_seen_at=opened_at)
    assert read_position_and_times(str(tmp_path)) == found
    assert read_position(str(tmp_path)) == Position(4, "id")


def test_the_file_of_the_lease_shows_whether_a_runner_is_alive(tmp_path: Path) -> None:
    append(tmp_path, state={"version": 4, "table_id": "id"})
    opened_at = append(tmp_path, opened=1)
    lease = tmp_path / "_lease"

    def write(seconds: float, name: str = "_lease", *, age: float = 0) -> dt.datetime:
        file, written_at = tmp_path / name, time.time() - age
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"holder": "h", "renewals": 3, "seconds": seconds}))
        os.utime(file, (written_at, written_at))
        return dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)

    def read() -> tuple[bool | None, dt.datetime | None, dt.datetime | None]:
        found = read_activity(str(tmp_path))
        return found.has_runner, found.runner_since, found.runner_seen_at

    assert read() == (None, None, opened_at)
    renewed_at = write(15)
    assert read() == (True, opened_at, renewed_at)
    write(15, age=16)  # the runner was killed
    assert read() == (None, None, opened_at)
    write(15, age=-3600)  # by a clock that is an hour ahead
    assert read() == (None, None, opened_at)
    released_at = write(0)
    assert read() == (None, None, released_at)
    lease.write_text('{"holder": "h", "ren')  # partly written
    assert read() == (None, None, opened_at)
    # The claim of a runner over Spark Connect counts beside a classic one that was released
    renewed_at = write(30, "_lease_connect/claim/part-00000-c000.txt")
    released_at = write(0)
    assert read() == (True, opened_at, max(renewed_at, released_at))

"""What can be seen of the runners of a trail without a JVM: through delta-rs, and from the file of the lease."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.trail.position import read_position_and_times

if TYPE_CHECKING:
    from cdf.sink import Activity

__all__ = ["read_activity"]


def read_activity(path: str, options: Mapping[str, str] | None = None) -> Activity:
    """Raises SinkUnavailable where the position cannot be read."""
    activity = read_position_and_times(path, options)
    written_at, seconds = _read_lease(path, options)
    opened_at = activity.runner_seen_at
    # The clocks of storage and reader are compared here: a wrong clock hides a runner, and does no other harm
    now = dt.datetime.now(dt.UTC)
    is_alive = written_at is not None and now < written_at + dt.timedelta(seconds=seconds)
    return replace(
        activity,
        has_runner=True if is_alive else None,
        runner_since=opened_at if is_alive else None,
        runner_seen_at=max(filter(None, (opened_at, written_at)), default=None),
    )


def _read_lease(path: str, options: Mapping[str, str] | None) -> tuple[dt.datetime | None, float]:
    """→ when the lease was written last, None if that is unknown; for how many seconds, 0: its runner has released it"""
    try:
        written_at, text = _read_local(path) if "://" not in path else _read_remote(path, dict(options or {}))
        return written_at, float(json.loads(text)["seconds"])
    except Exception:  # for information only: storage and drivers have errors of their own
        return None, 0.0


def _read_local(path: str) -> tuple[dt.datetime, bytes]:
    file = Path(path, "_lease")
    return dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC), file.read_bytes()


def _read_remote(path: str, options: dict[str, str]) -> tuple[dt.datetime, bytes]:
    import pyarrow.fs as pa_fs
    from deltalake.fs import DeltaStorageHandler

    handler: Any = DeltaStorageHandler(path, options)
    files = pa_fs.PyFileSystem(handler)
    (info,) = files.get_file_info(["_lease"])
    with files.open_input_file("_lease") as stream:
        return info.mtime.astimezone(dt.UTC), stream.read()

"""What can be seen of the runners of a trail without a JVM: through delta-rs, and from the claims on the lease."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from audit.trail.lease_claims import CLASSIC_CLAIM, CONNECT_CLAIM
from audit.trail.position import read_position_and_times

if TYPE_CHECKING:
    import pyarrow.fs as pa_fs

    from cdf.sink import Activity

__all__ = ["read_activity"]

CLOCK_DIFFERENCE = dt.timedelta(minutes=1)
"""A claim that is further in the future says nothing."""


def read_activity(path: str, options: Mapping[str, str] | None = None) -> Activity:
    """Raises SinkUnavailable where the position cannot be read."""
    activity = read_position_and_times(path, options)
    # The clocks of the storage and of this machine are compared here: if they differ, a runner may not be seen
    now, opened_at = dt.datetime.now(dt.UTC), activity.runner_seen_at
    claims = [claim for claim in _read_claims(path, options) if claim[0] < now + CLOCK_DIFFERENCE]
    is_alive = any(now < written_at + dt.timedelta(seconds=seconds) for written_at, seconds in claims)
    return replace(
        activity,
        has_runner=True if is_alive else None,
        runner_since=opened_at if is_alive else None,
        runner_seen_at=max(filter(None, (opened_at, *(written_at for written_at, _ in claims))), default=None),
    )


def _read_claims(path: str, options: Mapping[str, str] | None) -> list[tuple[dt.datetime, float]]:
    """→ when each claim on the lease was written, and for how many seconds it counts, 0: its runner has released it"""
    import pyarrow.fs as pa_fs

    found = []
    with suppress(Exception):  # for information only: storage and drivers have errors of their own
        files = _open_folder(path, dict(options or {}))
        of_connect = files.get_file_info(pa_fs.FileSelector(CONNECT_CLAIM, allow_not_found=True))
        for info in [*files.get_file_info([CLASSIC_CLAIM]), *of_connect]:
            if info.is_file and (info.path == CLASSIC_CLAIM or not info.base_name.startswith(("_", "."))):
                with suppress(ValueError, TypeError, KeyError), files.open_input_file(info.path) as stream:
                    found.append((info.mtime.astimezone(dt.UTC), float(json.loads(stream.read())["seconds"])))
    return found


def _open_folder(path: str, options: dict[str, str]) -> pa_fs.FileSystem:
    import pyarrow.fs as pa_fs

    if "://" not in path:
        return pa_fs.SubTreeFileSystem(path, pa_fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    handler: Any = DeltaStorageHandler(path, options)
    return pa_fs.PyFileSystem(handler)

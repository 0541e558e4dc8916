"""The position of a trail without a JVM: from the log of its ledger, read by delta-rs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.trail.redaction import parse_object
from cdf.errors import ConfigError, SinkUnavailable
from cdf.sink import Activity, Position

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    from audit.trail.column_history import Column

__all__ = [
    "MAINTENANCE_OPERATIONS",
    "RECENT_COMMITS",
    "open_ledger",
    "read_columns",
    "read_position",
    "read_position_and_times",
    "translate_read_errors",
]

MAINTENANCE_OPERATIONS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CREATE TABLE", "REORG"}
)
"""Operations on the ledger that neither add nor remove records."""

LEDGER, PAYLOAD = "ledger", "payload"
RECENT_COMMITS = 50
"""Number of the latest commits of the ledger that are searched for a state; some of them are maintenance or idle runs."""


def read_position(path: str, options: Mapping[str, str] | None = None) -> Position:
    """Read the position of the trail below ``path``; empty where there is no trail. ``options``: storage options of
    delta-rs.

    Pending events are not part of it: only the runner needs them. Raises SinkUnavailable.
    """
    return read_position_and_times(path, options).position


def read_position_and_times(path: str, options: Mapping[str, str] | None = None) -> Activity:
    """→ the position, when it moved there, when a runner opened the trail last; as far as the latest commits show it."""
    with translate_read_errors(path, "position"):
        ledger = open_ledger(path, options)
        if ledger is None:
            return Activity()
        commits = ledger.history(RECENT_COMMITS)
        position, moved_at = _find_state(commits) or (_read_from_records(ledger), None)
        return Activity(position, moved_at, runner_seen_at=_find_opening(commits))


def open_ledger(path: str, options: Mapping[str, str] | None) -> DeltaTable | None:
    """Open the ledger of the trail at ``path`` with delta-rs. None: there is no trail."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    location = f"{path}/ledger"
    if "://" not in location and not Path(location, "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(location, storage_options=dict(options or {}))
    except TableNotFoundError:
        return None


@contextmanager
def translate_read_errors(path: str, what: str) -> Iterator[None]:
    """Raise errors of delta-rs as SinkUnavailable. ``what`` of the trail is read in the block: its ledger or position."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, KeyError, TypeError, ValueError) as error:
        raise SinkUnavailable(
            f"the {what} of the trail at {path} cannot be read ({type(error).__name__})",
            hint="check that the storage is available and that this user may read it",
            target=path,
        ) from error


def read_columns(path: str, options: Mapping[str, str] | None = None) -> tuple[StructType, tuple[Column, ...]]:
    """Read the payload's schema, and the columns in the last record that has them.

    Raises ConfigError where there is no trail, and other errors for a damaged one.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError
    from pyspark.sql.types import StructType

    from audit.trail.column_history import columns_from_json

    if "://" not in path and not Path(path, "ledger", "_delta_log").is_dir():
        raise ConfigError(f"there is no trail at {path}", hint="`deltarelay run` creates it")
    try:
        ledger, payload = (
            DeltaTable(f"{path}/{name}", storage_options=dict(options or {})) for name in (LEDGER, PAYLOAD)
        )
    except TableNotFoundError as error:
        raise ConfigError(f"there is no trail at {path}", hint="`deltarelay run` creates it") from error
    rows = ledger.to_pyarrow_table(columns=["sequence", "record"]).sort_by([("sequence", "descending")])
    records = (parse_object(text) for text in rows.column("record").to_pylist())
    columns: list[dict[str, Any]] = next((record["columns"] for record in records if "columns" in record), [])
    return StructType.fromJson(json.loads(payload.schema().to_json())), columns_from_json(columns)


def _find_state(commits: Iterable[Mapping[str, Any]]) -> tuple[Position, dt.datetime | None] | None:
    """``commits``: the latest first. A commit that signs or removes values repeats the version of the one before it."""
    position, moved_at = None, None
    for commit in commits:
        metadata = parse_object(commit.get("userMetadata"))
        if "state" in metadata:
            state = Position(metadata["state"]["version"], metadata["state"]["table_id"])
            if position is not None and state != position:
                break
            position, moved_at = state, _get_time(commit)
        elif "opened" not in metadata and commit.get("operation") not in MAINTENANCE_OPERATIONS:
            break
    return None if position is None else (position, moved_at)


def _find_opening(commits: Iterable[Mapping[str, Any]]) -> dt.datetime | None:
    """When a runner opened the trail last. Each one begins a commit of its own, also if there is nothing to record."""
    return next((_get_time(one) for one in commits if "opened" in parse_object(one.get("userMetadata"))), None)


def _get_time(commit: Mapping[str, Any]) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(commit["timestamp"]) / 1000, tz=dt.UTC)


def _read_from_records(ledger: Any) -> Position:
    """Read the last record of a commit: two columns of a table with one short row per commit of the source."""
    import pyarrow.compute as pc

    rows = ledger.to_pyarrow_table(columns=["version", "record"]).drop_null()
    if rows.num_rows == 0:
        return Position(None)
    last = rows.filter(pc.equal(rows["version"], pc.max(rows["version"]))).column("record")[0].as_py()
    record = parse_object(last)
    return Position(record["version"], record["table_id"])

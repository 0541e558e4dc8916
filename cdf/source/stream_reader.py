"""Reads the feed with Spark's ``readStream``. Options that Delta ignores with the feed are refused, the others passed on."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, SourceError, condition_of
from cdf.session import check_session
from cdf.source.bounds import Bound, resolve_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.source.table_handle import TableHandle

__all__ = ["read_stream"]

_HONOURED = {
    "failOnDataLoss",
    "excludeRegex",
    "schemaTrackingLocation",
    "schemaLocation",
    "streamingSourceTrackingId",
    "allowSourceColumnRename",
    "allowSourceColumnDrop",
    "allowSourceColumnTypeChange",
}
_IGNORED = {
    "endingVersion": "a stream of the feed has no end; read a closed range with read()",
    "endingTimestamp": "a stream of the feed has no end; read a closed range with read()",
    "ignoreDeletes": "the feed has deletes as rows, so Delta ignores it; filter on _change_type",
    "ignoreChanges": "the feed has changes as rows, so Delta ignores it; filter on _change_type",
    "skipChangeCommits": "the feed has changes as rows, so Delta ignores it; filter on _change_type",
    "withEventTimeOrder": "open-source Delta does not implement it",
    "versionAsOf": "a stream does not support time travel; use start_version",
    "timestampAsOf": "a stream does not support time travel; use start_timestamp",
}
_OURS = {
    "startingVersion": "start_version",
    "startingTimestamp": "start_timestamp",
    "maxFilesPerTrigger": "max_files_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
    "readChangeFeed": "no option, because it is always on",
    "readChangeData": "no option, because it is always on",
}


def read_stream(
    table: TableHandle,
    *,
    start: Bound | None,
    max_files_per_trigger: int | None,
    max_bytes_per_trigger: str | int | None,
    options: Mapping[str, Any],
) -> DataFrame:
    check_session(table.spark)
    checked = check_options(options)
    table.require_enabled()
    reader = table.spark.readStream.format("delta").option("readChangeFeed", "true")
    if start is not None:
        # Always a number: Delta silently resolves "latest" and expired start timestamps.
        reader = reader.option("startingVersion", resolve_start(table.log, start, table=table.table))
    if max_files_per_trigger is not None:
        if type(max_files_per_trigger) is not int or max_files_per_trigger < 1:
            raise ConfigError(
                f"max_files_per_trigger must be at least 1, not {max_files_per_trigger}",
                hint="leave it out for Delta's default of 1000",
                condition="DELTA_ILLEGAL_OPTION",
            )
        reader = reader.option("maxFilesPerTrigger", max_files_per_trigger)
    if max_bytes_per_trigger is not None:
        reader = reader.option("maxBytesPerTrigger", str(max_bytes_per_trigger))
    for name, value in checked.items():
        reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    try:
        return reader.load(table.location)
    except Exception as error:
        condition = condition_of(error)
        raise SourceError(
            f"the change feed of {table.table} cannot be streamed",
            hint="check the options; `deltarelay feed status` shows the available versions",
            condition=condition,
        ) from error


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse all options that Delta would silently ignore. Names are compared without regard to case, as Delta does."""
    problems: list[str] = []
    checked: dict[str, Any] = {}
    known = {name.lower(): name for name in (*_HONOURED, *_IGNORED, *_OURS)}
    for given, value in options.items():
        name = known.get(given.lower())
        if name is None:
            near = difflib.get_close_matches(given.lower(), known, n=1)
            meant = known[near[0]] if near else ""
            ours = _OURS.get(meant, "")
            also = f" (did you mean {ours if ours.isidentifier() else meant}?)" if near else ""
            problems.append(f"{given}: unknown, and Delta ignores unknown options{also}")
        elif name in _IGNORED:
            problems.append(f"{name} has no effect with the change feed: {_IGNORED[name]}")
        elif name in _OURS:
            problems.append(f"{name}: use {_OURS[name]}")
        elif name == "failOnDataLoss" and str(value).lower() != "true":
            problems.append("failOnDataLoss=false silently skips missing commits")
        else:
            checked[name] = value
    if problems:
        raise ConfigError("the stream's options cannot be used: " + "; ".join(problems), hint="leave them out")
    return checked

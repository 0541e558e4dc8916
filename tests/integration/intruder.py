"""Edits the files of a Delta table as somebody would who may write to the storage and knows the format."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

__all__ = ["forge_statistics", "rewrite"]

Edit = Callable[[pa.Table], pa.Table]


def rewrite(table: str | Path, edit: Edit) -> int:
    """Hand each file of the table to ``edit``; another content takes the file's place, by a commit made by hand and without
    statistics. → how many files were replaced"""
    folder = Path(table)
    opened = DeltaTable(str(folder))
    actions: list[dict[str, Any]] = []
    now = int(time.time() * 1000)
    for file in opened.file_uris():
        path = Path(file)
        before = pq.read_table(path, coerce_int96_timestamp_unit="us")
        after = edit(before)
        if after.equals(before):
            continue
        actions.append(
            {"remove": {"path": path.relative_to(folder).as_posix(), "deletionTimestamp": now, "dataChange": False}}
        )
        if after.num_rows:
            name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            pq.write_table(after, folder / name, use_deprecated_int96_timestamps=True)  # as Spark does
            size = (folder / name).stat().st_size
            add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": False}
            actions.append({"add": add})
    if actions:
        _commit(folder, opened.version() + 1, actions)
    return len([action for action in actions if "remove" in action])


def forge_statistics(table: str | Path, forged: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Each file is added again as it is, with what ``forged`` makes of its statistics. → how many files"""
    folder = Path(table)
    opened = DeltaTable(str(folder))
    said: dict[str, dict[str, Any]] = {}
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            said |= {action["add"]["path"]: action["add"]} if "add" in action else {}
    live = [Path(file).relative_to(folder).as_posix() for file in opened.file_uris()]
    adds = [
        {"add": {**said[path], "dataChange": False, "stats": json.dumps(forged(json.loads(said[path]["stats"])))}}
        for path in live
        if "stats" in said[path]
    ]
    _commit(folder, opened.version() + 1, adds)
    return len(adds)


def _commit(folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
    info = {"timestamp": int(time.time() * 1000), "operation": "OPTIMIZE", "operationParameters": {}}
    text = "\n".join(json.dumps(action) for action in ({"commitInfo": info}, *actions)) + "\n"
    (folder / "_delta_log" / f"{version:020}.json").write_text(text)

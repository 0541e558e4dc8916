"""Commits as another program writes them: put into a table's log by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ENGINE", "append_commit", "metadata_with", "protocol"]

ENGINE = "OtherEngine/7.1"


def append_commit(table: str | Path, *actions: Mapping[str, Any], operation: str = "UPGRADE PROTOCOL") -> int:
    """→ the version of the commit"""
    log = Path(table, "_delta_log")
    version = 1 + max(int(file.stem) for file in log.glob("*.json"))
    now = int(time.time() * 1000)
    info = {"timestamp": now, "inCommitTimestamp": now, "operation": operation, "operationParameters": {}}
    lines = [{"commitInfo": {**info, "engineInfo": ENGINE}}, *actions]
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return version


def protocol(*readers: str, writers: tuple[str, ...] = ()) -> dict[str, Any]:
    """An action that makes the table need these features."""
    found: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(readers)}
    return {"protocol": {**found, "writerFeatures": [*readers, *writers, "changeDataFeed", "appendOnly", "invariants"]}}


def metadata_with(table: str | Path, **properties: str) -> dict[str, Any]:
    """The table's first metadata with more properties, written without their ``delta.``."""
    lines = Path(table, "_delta_log", f"{0:020d}.json").read_text().split("\n")
    action: dict[str, Any] = next(json.loads(line) for line in lines if line.startswith('{"metaData"'))
    action["metaData"]["configuration"].update({f"delta.{name}": value for name, value in properties.items()})
    return action

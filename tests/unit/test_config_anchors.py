"""The anchors that a configuration names are built from it, without a connection."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr

from audit.anchors.file import FileAnchor
from audit.anchors.postgres import PostgresAnchor
from audit.anchors.s3 import S3Anchor
from connectors.delta_audit.config import FileAnchorOptions, PostgresAnchorOptions, S3AnchorOptions


def test_each_kind_of_anchor_is_built_under_its_name(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(
        get_connection=lambda *_: SimpleNamespace(dsn=SecretStr("host=127.0.0.1")),
    )
    options = (
        FileAnchorOptions(kind="file", path=str(tmp_path)),
        PostgresAnchorOptions(kind="postgres", connection="warehouse"),
        S3AnchorOptions(kind="s3", url="s3://bucket/anchor"),
    )
    built = [one.build(context) for one in options]
    assert [one.name for one in built] == [str(tmp_path), "warehouse", "s3://bucket/anchor"]
    assert [type(one.anchor) for one in built] == [FileAnchor, PostgresAnchor, S3Anchor]

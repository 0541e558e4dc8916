"""Refuses schema changes that a sink cannot follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.errors import SchemaDrift

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange
    from cdf.sink.contract import Sink

__all__ = ["check_followed"]


def check_followed(
    changes: Sequence[SchemaChange], sink: Sink, *, table: str, version: int, key: Sequence[str]
) -> None:
    """Raise SchemaDrift, with all the changes at ``version`` that the sink cannot follow, before anything is written."""
    refused: list[SchemaChange] = []
    for change in changes:
        why = sink.cannot_follow(change, key)
        if why is not None:
            refused.append(replace(change, detail=f"{change.detail} ({why})" if why else change.detail))
    if refused:
        raise SchemaDrift(
            f"version {version} of {table} changes the schema in a way the sink cannot follow: "
            + "; ".join(map(str, refused)),
            hint=f"run with --until {version - 1} to apply everything before it; "
            "after that rebuild the target from a snapshot: `deltarelay run --reload`",
            table=table,
            version=version,
            changes=[change.detail for change in refused],
        )

"""Whether a sink can follow a change of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.errors import SchemaDrift

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange
    from cdf.sink.contract import Capabilities, Evolving

__all__ = ["check_followed"]


def check_followed(
    changes: Sequence[SchemaChange],
    capabilities: Capabilities,
    *,
    table: str,
    version: int,
    key: Sequence[str],
    sink: Evolving | None = None,
) -> None:
    """Refuse, by name and before anything is written, what the sink cannot follow. ``sink``: one that decides itself."""
    refused: list[SchemaChange] = []
    for change in changes:
        if sink is not None:
            why = sink.cannot_follow(change, key)
            if why is not None:
                refused.append(replace(change, detail=f"{change.detail} ({why})" if why else change.detail))
        elif change.kind not in capabilities.schema_changes or change.column in key:
            refused.append(change)
    if refused:
        raise SchemaDrift(
            f"version {version} of {table} changes the schema in a way the sink cannot follow: "
            + "; ".join(map(str, refused)),
            hint=f"run with --until {version - 1} to apply everything before it; "
            "after that make the target anew from a snapshot: `deltarelay run --reload`",
            table=table,
            version=version,
            changes=[change.detail for change in refused],
        )

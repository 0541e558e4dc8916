"""Lists every reason why a trail cannot keep a table, and why it proves less than it could."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.hashing.value_encoding import find_unsupported_fields
from audit.trail.column_history import find_unwritable_fields
from cdf.errors import CdfError, ConfigError
from cdf.session import is_connect
from cdf.source.single_writer import require_writer
from cdf.spark_versions import can_create_session
from connectors.delta_audit.context import TrailContext

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange

__all__ = ["find_evolution_problem", "find_problems", "find_proof_gaps"]


def find_problems(context: TrailContext, schema: StructType) -> list[str]:
    """Return why a table with this schema cannot be kept in the trail; empty if it can."""
    problems = []
    if context.has_spark:
        try:
            require_writer(context.spark, context.path)
        except ConfigError as error:
            problems.append(f"{error.message}: {error.hint}")
    if context.has_spark and is_connect(context.spark):
        problems += _find_connect_problems(context)
    problems += [
        f"column {path} has no canonical form that can be hashed: leave it out of the source"
        for path in find_unsupported_fields(schema)
    ]
    problems += context.encryption.find_problems(schema) if context.encryption is not None else []
    problems += [
        f"the field {path} has a name that is not allowed in files without column mapping, which a trail does not use"
        for path in find_unwritable_fields(schema)
    ]
    return problems


def _find_connect_problems(context: TrailContext) -> list[str]:
    problems = []
    if not can_create_session(context.spark):  # to delete what an interrupted window has left
        problems.append("a trail over Spark Connect needs Spark 4.1 or newer, or a classic Spark session")
    if context.encryption is not None:  # the keys would be part of a query's plan
        problems.append("columns that are encrypted for each person need a classic Spark session")
    return problems


def find_proof_gaps(context: TrailContext) -> tuple[str, ...]:
    """Return warnings about a missing signing key, and about missing or unavailable anchors."""
    if context.signer is None:
        return ("this trail is not signed: a user who can write to it can rewrite all of it; set signing_key",)
    if not context.anchors:
        return (
            "its checkpoints are stored only in the trail itself: restoring an older state is not detected; set anchors",
        )
    warnings = []
    for named in context.anchors:
        try:
            named.anchor.latest("")
        except CdfError as error:
            warnings.append(f"{error.message}: checkpoints will not be published there ({error.hint})")
    return tuple(warnings)


def find_evolution_problem(change: SchemaChange, key: Collection[str]) -> str | None:
    """Return why a trail cannot follow the schema change; None if it can."""
    after = change.after
    if after is not None and find_unsupported_fields(StructType([after])):
        return "its type has no canonical form that can be hashed"
    if after is not None and find_unwritable_fields(StructType([after])):
        return (
            "a field in it has a name that is not allowed in files without column mapping, which a trail does not use"
        )
    is_renamed = change.before is not None and (after is None or after.name != change.before.name)
    if change.before is not None and change.before.name in key and is_renamed:
        return "it belongs to the key"
    return None

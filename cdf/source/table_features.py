"""The table features that this reader knows. A table that needs any other reader feature is refused by name.

Ignoring a feature can read wrong rows. A feature that moves commits or data to another place is worse: the log in the
table's folder then simply ends, and a reader would report that there is nothing new.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cdf.changes.commits import Protocol
from cdf.errors import FeatureNotSupported, condition_of

__all__ = ["KNOWN_FEATURES", "check_features", "translate_refusal"]

KNOWN_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""The reader features that are read exactly; tests/integration/test_table_features.py replicates a table with each."""
_MAX_READER_VERSION = 3
_COORDINATOR = "delta.coordinatedCommits.commitCoordinator"
_ELSEWHERE = {"catalog": "its newest commits are in a catalog", "redirect": "its data are at another location"}
"""Reader or writer features, by the beginning of their names, whose tables are not only in their folder."""
_NO_PLACE = "replicate a table whose commits are all in its own _delta_log"
_REFUSED = re.compile(
    r'unsupported by (?:this version of )?Delta Lake "[^"]*": (?P<spark>[^\n]+?)\.(?:\s|$)'
    r"|Feature '(?P<rust>[^']+)' is not supported|Unsupported minimum reader version (?P<version>\d+)"
    r"|(?P<catalog>DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED|loading a catalog-managed table)"
    r"|(?P<coordinator>CommitCoordinatorProvider|Unknown commit-coordinator)"
)
"""Both Delta in Spark and delta-rs name the features in the text only."""


def check_features(protocol: Protocol | None, properties: Mapping[str, str], table: str) -> None:
    """Raise FeatureNotSupported if the table needs a feature that this reader does not know, or commits elsewhere."""
    if any(name.startswith(_COORDINATOR) for name in properties):
        raise _refuse_coordinator(table)
    if protocol is None:
        return
    names = {*protocol.reader_features, *protocol.writer_features}
    unknown = {name for name in names if name.startswith(tuple(_ELSEWHERE))}
    unknown |= set(protocol.reader_features) - KNOWN_FEATURES
    if unknown:
        raise _refuse(table, sorted(unknown), by="deltarelay")
    if protocol.min_reader > _MAX_READER_VERSION:
        raise _refuse(table, version=protocol.min_reader, by="deltarelay")


def translate_refusal(error: BaseException, table: str) -> FeatureNotSupported | None:
    """The error for a feature that Delta in Spark or delta-rs refuses; None: another error."""
    if (found := _REFUSED.search(str(error))) is None:
        return None
    condition = condition_of(error)
    if found["coordinator"]:
        return _refuse_coordinator(table, condition)
    if found["catalog"]:
        return _refuse(table, ["catalogManaged"], by="deltarelay", condition=condition)
    names = (found["spark"] or found["rust"] or "").split(", ")
    by = "the installed Delta Lake" if found["spark"] else "delta-rs"
    return _refuse(table, names, version=found["version"], by=by, condition=condition)


def _refuse(
    table: str,
    names: Iterable[str] = (),
    *,
    by: str,
    version: int | str | None = None,
    condition: str | None = None,
) -> FeatureNotSupported:
    needs = f"reader version {version}" if version else f"the table feature {', '.join(names)}"
    for begins, why in _ELSEWHERE.items():
        if any(name.startswith(begins) for name in names):
            return FeatureNotSupported(
                f"{table} has {needs}: {why}, where deltarelay does not read them",
                hint=_NO_PLACE,
                condition=condition,
                table=table,
            )
    return FeatureNotSupported(
        f"{table} needs {needs}, which {by} does not support",
        hint="upgrade deltarelay, or remove the feature from the table, if a writer that supports it can do that "
        "(`ALTER TABLE … DROP FEATURE …`)",
        condition=condition,
        table=table,
    )


def _refuse_coordinator(table: str, condition: str | None = None) -> FeatureNotSupported:
    return FeatureNotSupported(
        f"{table} has coordinated commits ({_COORDINATOR}…): its newest commits are with the coordinator, where deltarelay "
        "does not read them",
        hint=_NO_PLACE,
        condition=condition,
        table=table,
    )

"""The page of table features. Its table lists the cases that tests/integration/test_table_features.py replicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdf.source.table_features import KNOWN_FEATURES

__all__ = ["CASES", "REFUSED", "Case", "feature_page"]


@dataclass(frozen=True, slots=True)
class Case:
    """A table with a feature. ``{t}`` in a statement is the table."""

    title: str
    features: tuple[str, ...] = ()
    """The protocol of the table must name these."""
    more: str = ""
    """Further columns, after ``id bigint, v string``."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Column → SQL expression over ``id``, for the columns that a statement writes."""
    clause: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Without their ``delta.``."""
    later: tuple[str, ...] = ()
    """Statements after the first changes."""
    writer: str = "Spark"
    note: str = ""


_MAPPED = (
    "alter table {t} rename column v to w",
    "update {t} set w = 'renamed' where id = 1",
    "alter table {t} drop column n",
    "insert into {t} (id, w) values (40, 'after')",
)
_SPECIAL = "array('a b', 'a/b', 'x=y', '100%', \"o'k\", 'ä:€', '{b}', '', '#?', 'a\\\\\\\\b')[cast(id % 10 as int)]"

CASES: dict[str, Case] = {
    "deletion_vectors": Case("Deletion vectors", ("deletionVectors",), properties={"enableDeletionVectors": "true"}),
    "column_mapping_name": Case(
        "Column mapping by name; a column renamed, another dropped", ("columnMapping",), "n int",
        {"n": "cast(id as int)"}, properties={"columnMapping.mode": "name"}, later=_MAPPED,
        note="The target's columns follow.",
    ),
    "column_mapping_id": Case(
        "Column mapping by id; a column renamed, another dropped", ("columnMapping",), "n int",
        {"n": "cast(id as int)"}, properties={"columnMapping.mode": "id"}, later=_MAPPED,
        note="The target's columns follow.",
    ),
    "type_widening": Case(
        "Type widening: int to bigint", ("typeWidening",), "n int", {"n": "cast(id as int)"},
        properties={"enableTypeWidening": "true"},
        later=("alter table {t} alter column n type bigint", "update {t} set n = 5000000000 where id = 1"),
        note="The target's column follows.",
    ),
    "timestamp_ntz": Case(
        "Timestamps without a time zone", ("timestampNtz",), "at timestamp_ntz",
        {"at": "timestamp_ntz '2026-01-31 12:00:00.123456' + make_interval(0, 0, 0, cast(id as int))"},
    ),
    "variant": Case(
        "Variant", ("variantType",), "d variant", {"d": "parse_json(concat('{\"n\": ', id, ', \"l\": [1, null]}'))"},
        note="Stored as jsonb.",
    ),
    "variant_shredding": Case(
        "Variant, shredded", ("variantType", "variantShredding"), "d variant",
        {"d": "parse_json(concat('{\"n\": ', id, '}'))"},
        properties={"enableVariantShredding": "true", "feature.variantShredding": "supported"},
        note="Stored as jsonb.",
    ),
    "liquid_clustering": Case("Liquid clustering", ("clustering", "domainMetadata"), clause="cluster by (v)",
        later=("optimize {t}", "update {t} set v = 'clustered' where id = 1")),
    "generated_column": Case(
        "Generated column", ("generatedColumns",), "twice bigint generated always as (id * 2)",
        note="Replicated as a column with values.",
    ),
    "identity_column": Case(
        "Identity column", ("identityColumns",), "number bigint generated always as identity",
        note="Replicated as a column with values.",
    ),
    "default_column": Case(
        "Default of a column", ("allowColumnDefaults",), "d string default 'none'",
        properties={"feature.allowColumnDefaults": "supported"}, note="Rows have the value; the default is not copied.",
    ),
    "check_constraint": Case(
        "Check constraint", ("checkConstraints",), later=("alter table {t} add constraint positive check (id >= 0)",
        "update {t} set v = 'checked' where id = 1"),
    ),
    "row_tracking": Case("Row tracking", ("rowTracking", "domainMetadata"), properties={"enableRowTracking": "true"}),
    "in_commit_timestamps": Case(
        "In-commit timestamps", ("inCommitTimestamp",), properties={"enableInCommitTimestamps": "true"},
        note="The time of a commit is the in-commit timestamp.",
    ),
    "v2_checkpoint": Case(
        "V2 checkpoints", ("v2Checkpoint",), properties={"checkpointPolicy": "v2", "checkpointInterval": "2"}
    ),
    "checkpoint_protection": Case(
        "Checkpoint protection, after a dropped feature", ("checkpointProtection",),
        properties={"enableDeletionVectors": "true"},
        later=("alter table {t} drop feature deletionVectors", "update {t} set v = 'dropped' where id = 1"),
    ),
    "vacuum_protocol_check": Case(
        "Vacuum protocol check", ("vacuumProtocolCheck",), properties={"feature.vacuumProtocolCheck": "supported"}
    ),
    "special_partitions": Case(
        "Partition values with special characters, empty and null", (), "p string",
        {"p": f"if(id = 7, null, {_SPECIAL})"}, clause="partitioned by (p)",
        later=("update {t} set p = 'ü/ü=1' where id = 1", "delete from {t} where p = 'a/b'"),
    ),
    "many_columns": Case(
        "500 columns", (), ", ".join(f"c{n} string" for n in range(498)), {"c7": "concat('c', id)"},
    ),
    "delta_rs": Case("Written by delta-rs", ("changeDataFeed",), writer="delta-rs"),
}  # fmt: skip

REFUSED = {
    "`catalogManaged`, `catalogOwned-preview`": "The newest commits are in a catalog, not in `_delta_log`.",
    "Coordinated commits (`delta.coordinatedCommits.*`)": "The newest commits are with the coordinator.",
    "`redirectReaderWriter…`, `redirectWriterOnly…`": "The data are at another location.",
    "`geospatial`, `adaptiveMetadata-preview`": "Not tested.",
    "A collated column in the key": "Keys that are equal to Spark would differ in the target (`type_not_supported`).",
    "Every other reader feature, and a reader version above 3": "Unknown.",
}


def feature_page() -> str:
    read = [
        f"| {case.title} | {', '.join(f'`{name}`' for name in case.features) or 'none'} | {case.writer} | {case.note} |"
        for case in CASES.values()
    ]
    refused = [f"| {name} | {why} |" for name, why in REFUSED.items()]
    return _PAGE.format(
        read="\n".join(read),
        refused="\n".join(refused),
        known=", ".join(f"`{name}`" for name in sorted(KNOWN_FEATURES)),
    )


_PAGE = """# Table features

<!-- Generated by `python -m tools.reference`. -->

Before the first read deltarelay compares the protocol of the table with the reader features that it knows. A table that
needs another one is refused by name (`feature_not_supported`), also by `feed status`, `status`, `doctor` and `validate
--connect`. A commit that needs another one stops the run before it is read. Features for writers only do not change how
a table is read, with the exceptions below.

## Read

Each line is a test with a real table, on the newest supported pair of Spark and Delta: the table is copied into
PostgreSQL, then changed by insert, update, delete and merge, then by what the line says. `verify` finds source and
target equal after each of these steps.

| Table | Features of the protocol | Written by | |
|---|---|---|---|
{read}

Known reader features: {known}.

## Refused

| Table | Why |
|---|---|
{refused}

Reading a catalog-managed table through its catalog is not tested, so it is refused.

Collated columns outside of the key are read, but not tested: the open-source Delta refuses to write them.

Other writers than Delta may record updates without their old rows. Such a commit stops the run with `key_violation`
(reason `image_missing`), because a changed key would leave a row that no longer exists.
"""

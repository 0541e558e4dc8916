"""The commit records of a trail's ledger as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.trail.tables import LEDGER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail

__all__ = ["RECORD_COLUMNS", "read_commit_records", "read_last_sequence"]

RECORD_COLUMNS = ("operation", "actor", "ticket", "purpose", "job", "run", "approver")
"""The columns of the view that come from a commit's record."""


def read_commit_records(trail: Trail) -> DataFrame:
    """The records as columns: one row for each commit of the source, also for commits that changed no row.

    ``sequence``, ``version``, ``baseline``, ``committed_at``, ``operation``, ``parameters`` (JSON), ``actor``, ``ticket``,
    ``purpose``, ``job``, ``run``, ``approver``, ``rows``, ``counts`` (by change type), ``log_sha256``, ``columns`` (JSON;
    NULL where they are the same as in the record before).
    """
    from pyspark.sql import functions as F

    record = F.from_json("record", _RECORD)
    return (
        trail.require_tables()
        .read(LEDGER)
        .where("kind in ('commit', 'baseline')")
        .select(
            "sequence",
            "version",
            (F.col("kind") == "baseline").alias("baseline"),
            "committed_at",
            record["operation"].alias("operation"),
            F.get_json_object("record", "$.parameters").alias("parameters"),
            record["user"].alias("actor"),
            *(record[name].alias(name) for name in RECORD_COLUMNS[2:]),
            F.col("events").alias("rows"),
            record["counts"].alias("counts"),
            record["log_sha256"].alias("log_sha256"),
            F.get_json_object("record", "$.columns").alias("columns"),
        )
    )


_RECORD = (
    "operation string, user string, ticket string, purpose string, job string, run string, approver string, "
    "counts map<string, long>, log_sha256 string"
)


def read_last_sequence(trail: Trail) -> int | None:
    """The number of the last record, for ``join_events``; to be read before the payload. None for a trail without keys."""
    from pyspark.sql import functions as F

    if trail.states is None:
        return None
    number: int | None = trail.require_tables().read_current(LEDGER).agg(F.max("sequence")).collect()[0][0]
    return number

"""Questions about what the trail does not contain or does not show: gaps, removals, erasures, encrypted values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from audit.encryption.decrypt import has_groups
from audit.queries.commit_records import read_commit_records, read_last_sequence
from audit.queries.fields import build_fields, build_fields_at
from audit.queries.questions.event_rows import (
    is_hidden,
    is_one_of,
)
from audit.queries.questions.moments import When, resolve_version
from audit.queries.view import add_missing_columns, join_events, read_table, read_values, select_row
from audit.trail.record_kinds import PAYLOAD_CHANGES
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail


__all__ = ["count_hidden_keys", "count_removed_values", "erasures", "gaps", "readings", "removals"]


def gaps(trail: Trail) -> DataFrame:
    """Versions and events that are missing from the trail, or are in it twice; an intact trail has none.

    ``fault``, ``first_version``, ``last_version``, ``events`` (how many too many or too few; NULL for versions). Faults are
    ``version missing`` and ``version doubled``, between the ledger's first and last; ``events missing`` and
    ``events doubled`` of a commit; ``events without a record``, of a commit without a record, or without one yet.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    at, before = F.col("version"), F.col("before")
    placed = read_commit_records(trail).withColumn("before", F.lag("version").over(Window.orderBy("sequence")))
    steps = placed.where(before.isNotNull() & (at != before + 1))
    versions = steps.select(
        F.when(at > before + 1, "version missing").otherwise("version doubled").alias("fault"),
        F.when(at > before + 1, before + 1).otherwise(at).alias("first_version"),
        F.when(at > before + 1, at - 1).otherwise(at).alias("last_version"),
        F.lit(None).cast("long").alias("events"),
    )
    recorded = read_commit_records(trail).groupBy("version").agg(F.first("rows").alias("rows"))
    of_commits = trail.require_tables().read(EVENTS).groupBy("version")
    there = of_commits.agg(F.count("*").alias("there"), F.count_distinct("index").alias("places"))
    both = recorded.join(there, "version", "full_outer").fillna(0, ["there", "places"])
    fault = (
        F.when(F.col("rows").isNull(), "events without a record")
        .when(F.col("there") > F.col("places"), "events doubled")
        .when(F.col("there") != F.col("rows"), "events missing")
    )
    events = both.select(
        fault.alias("fault"),
        at.alias("first_version"),
        at.alias("last_version"),
        F.abs(F.col("there") - F.coalesce("rows", F.lit(0))).alias("events"),
    )
    return versions.unionByName(events.where("fault is not null")).orderBy("first_version", "fault")


def removals(trail: Trail) -> DataFrame:
    """Recorded removals of values: when, how many, by whom and why.

    ``sequence`` (of the record), ``removed_at``, ``kind`` (``removal``; ``shredding``: ciphertexts of destroyed keys were
    removed; ``sealing``: readable values were encrypted), ``events`` (number of values), ``versions`` (number of versions;
    NULL for a shredding), ``actor``, ``approver``, ``ticket``, ``purpose``, ``job``, ``run``.
    """
    from pyspark.sql import functions as F

    fields = "user string, approver string, ticket string, purpose string, job string, run string, values long"
    record = F.from_json("record", f"{fields}, removed map<string, string>, sealed map<string, string>")
    places = F.coalesce(record["removed"], record["sealed"])
    return (
        trail.require_tables()
        .read(LEDGER)
        .where(F.col("kind").isin(*PAYLOAD_CHANGES))
        .select(
            "sequence",
            F.col("committed_at").alias("removed_at"),
            "kind",
            record["values"].alias("events"),
            F.when(places.isNotNull(), F.size(places)).alias("versions"),
            record["user"].alias("actor"),
            *(record[name].alias(name) for name in ("approver", "ticket", "purpose", "job", "run")),
        )
        .orderBy("sequence")
    )


def erasures(trail: Trail) -> DataFrame:
    """States that erasures of people in this table have reached.

    ``sequence`` (of the record), ``noted_at``, ``reached_at``, ``run``, ``state`` (one of ``audit.erasure.model.STATES``),
    ``requests`` (ids).
    """
    from pyspark.sql import functions as F

    record = F.from_json("record", "run string, state string, requests array<string>, reached_at timestamp")
    rows = trail.require_tables().read(LEDGER).where("kind = 'erasure'")
    columns = (record[name].alias(name) for name in ("reached_at", "run", "state", "requests"))
    return rows.select("sequence", F.col("committed_at").alias("noted_at"), *columns).orderBy("sequence")


def readings(trail: Trail) -> DataFrame:
    """Readings of encrypted values: by whom and for which purpose.

    ``sequence`` (of the record), ``noted_at``, ``read_at``, ``role`` (of the registry's database), ``reader``, ``purpose``,
    ``question``, ``keys`` (number of keys that were returned).
    """
    from pyspark.sql import functions as F

    record = F.from_json(
        "record", "read_at timestamp, role string, reader string, purpose string, question string, keys long"
    )
    rows = trail.require_tables().read(LEDGER).where("kind = 'reading'")
    columns = (record[name].alias(name) for name in ("read_at", "role", "reader", "purpose", "question", "keys"))
    return rows.select("sequence", F.col("committed_at").alias("noted_at"), *columns).orderBy("sequence")


def count_removed_values(trail: Trail) -> int:
    """The number of events whose values were removed: questions about records cannot return them."""
    from pyspark.sql import functions as F

    totals = read_commit_records(trail).agg(F.sum("rows").alias("rows"), F.max("version").alias("last")).collect()[0]
    if totals["last"] is None:
        return 0
    return max(
        0, int(totals["rows"]) - trail.require_tables().read(PAYLOAD).where(f"version <= {totals['last']}").count()
    )


def count_hidden_keys(trail: Trail, key: Sequence[str], when: When | None = None) -> int:
    """The number of events, up to a moment, whose record is unknown because a column of the key is hidden, such as an erased
    one. ``as_of``, ``diff`` and ``column_changes`` leave them out."""
    from pyspark.sql import functions as F

    if trail.states is None or not has_groups(trail.require_tables().read(PAYLOAD)):
        return 0
    recorded, payload = read_last_sequence(trail), add_missing_columns(trail, read_table(trail, PAYLOAD))
    version = None if when is None else resolve_version(trail, when)
    fields = build_fields(trail.columns()) if version is None else build_fields_at(trail, version)
    if version is not None:
        payload = payload.where(f"version <= {version}")
    of_key = (field.value().isNull() for field in fields if is_one_of(field, key))
    # Rows with a plaintext key need no decryption: in most trails none remain
    rows = read_values(trail, payload.where(reduce(or_, of_key, F.lit(False))))
    events = join_events(trail, select_row(rows, fields), recorded=recorded).where("row is not null")
    return events.where(is_hidden(events, key)).count()

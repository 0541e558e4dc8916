"""Questions about who changed the table, and why."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql.types import StringType

from audit.queries.commit_records import read_commit_records
from audit.queries.find_record import create_row
from audit.queries.questions.event_rows import (
    CHANGE_COUNTS,
    COMMIT_COLUMNS,
    CONTEXT_COLUMNS,
    change_counts,
)
from audit.queries.questions.moments import filter_period
from audit.queries.risky_operations import why_hiding
from audit.queries.view import reason_columns, view
from cdf.changes.columns import DELETE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail


__all__ = ["actor_activity", "actors", "deletes", "deletes_without_ticket", "hiding_operations"]


def deletes(trail: Trail, since: dt.datetime | None = None, until: dt.datetime | None = None) -> DataFrame:
    """Deleted rows of a period: by whom and why.

    ``since`` is part of the period, ``until`` is not. ``version``, ``committed_at``, ``index``, ``operation``, ``actor``,
    ``ticket``, ``purpose``, ``job``, ``run``, ``values`` (``removed``: the row is NULL), ``row``.
    """
    rows = filter_period(view(trail), since, until).where(f"change_type = '{DELETE}'")
    columns = ("version", "committed_at", "index", *CONTEXT_COLUMNS, "values", "row", *reason_columns(rows))
    return rows.select(*columns).orderBy("version", "index")


def deletes_without_ticket(
    trail: Trail, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> DataFrame:
    """Commits that deleted rows and name no ticket.

    ``version``, ``committed_at``, ``operation``, ``actor``, ``deleted`` (rows), ``purpose``, ``job``, ``run``.
    """
    from pyspark.sql import functions as F

    deleted = F.coalesce(F.col("counts")[DELETE], F.lit(0)).alias("deleted")
    rows = filter_period(read_commit_records(trail), since, until).where(F.col("ticket").isNull())
    return rows.select(*COMMIT_COLUMNS, deleted, "purpose", "job", "run").where("deleted > 0").orderBy("version")


def actor_activity(
    trail: Trail, actor: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> DataFrame:
    """Commits of one actor: one row for each, with the number of changes.

    ``version``, ``committed_at``, ``operation``, ``actor``, ``inserts``, ``updates``, ``deletes``, ``ticket``, ``purpose``,
    ``job``, ``run``.
    """
    from pyspark.sql import functions as F

    asked = create_row(trail.require_tables().spark, [("actor", actor, StringType())])
    rows = filter_period(read_commit_records(trail), since, until).join(
        F.broadcast(asked), F.col("actor") == F.col("key_0")
    )
    return rows.select(*COMMIT_COLUMNS, *change_counts(), "ticket", "purpose", "job", "run").orderBy("version")


def actors(trail: Trail) -> DataFrame:
    """Actors who changed the table. NULL: Delta recorded no user.

    ``actor``, ``first_at``, ``last_at``, ``commits``, ``inserts``, ``updates``, ``deletes``.
    """
    from pyspark.sql import functions as F

    rows = read_commit_records(trail).where("not baseline").select("actor", "committed_at", *change_counts())
    sums = (F.sum(name).alias(name) for name in CHANGE_COUNTS)
    return (
        rows.groupBy("actor")
        .agg(
            F.min("committed_at").alias("first_at"),
            F.max("committed_at").alias("last_at"),
            F.count("*").alias("commits"),
            *sums,
        )
        .orderBy(F.col("commits").desc(), "actor")
    )


def hiding_operations(trail: Trail, since: dt.datetime | None = None, until: dt.datetime | None = None) -> DataFrame:
    """Operations that can hide data: RESTORE, VACUUM, changed properties, a disabled change feed, dropped columns.

    Includes operations that are not known here, or that the log does not name. ``version``, ``committed_at``, ``operation``,
    ``actor``, ``why``, ``parameters`` (JSON), ``rows``, ``ticket``, ``purpose``.
    """
    from pyspark.sql import functions as F

    why = F.udf(why_hiding, StringType())("operation", "parameters")
    rows = (
        filter_period(read_commit_records(trail), since, until)
        .where("not baseline")
        .withColumn("why", why)
        .where("why is not null")
    )
    return rows.select(*COMMIT_COLUMNS, "why", "parameters", "rows", "ticket", "purpose").orderBy("version")

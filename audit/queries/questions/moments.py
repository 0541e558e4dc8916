"""Versions and times that questions take as arguments."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, TypeAlias

from audit.queries.commit_records import read_commit_records
from cdf.errors import ConfigError
from cdf.source.bounds import parse_timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail


__all__ = ["When", "check_beginning", "filter_period", "resolve_version"]

When: TypeAlias = "int | dt.datetime"
"""A version of the source, or a time, which means the last version that was committed by then."""


def resolve_version(trail: Trail, when: When) -> int:
    """The version of a moment. Raises ConfigError, with the range of the trail, for a moment outside of it."""
    from pyspark.sql import functions as F

    at = parse_timestamp(when, name="the moment") if isinstance(when, dt.datetime) else None
    by_then = F.lit(True) if at is None else F.col("committed_at") <= F.lit(at)
    ends = (
        read_commit_records(trail)
        .agg(
            F.min("version").alias("first"),
            F.max("version").alias("last"),
            *(F.unix_micros(end("committed_at")).alias(name) for end, name in ((F.min, "began"), (F.max, "ended"))),
            F.max(F.when(by_then, F.col("version"))).alias("version"),
        )
        .collect()[0]
    )
    if ends["first"] is None:
        raise ConfigError(f"the trail at {trail.path} is empty", hint="`deltarelay run` fills it")
    inside = ends["first"] <= when <= ends["last"] if at is None else ends["version"] is not None
    if not inside or (at is not None and at > _from_micros(ends["ended"])):
        began, ended = (
            "at an unknown time" if end is None else _from_micros(end).isoformat()
            for end in (ends["began"], ends["ended"])
        )
        raise ConfigError(
            "the moment is outside of the trail",
            hint=f"the trail covers version {ends['first']} ({began}) to version {ends['last']} ({ended})",
        )
    return when if isinstance(when, int) else int(ends["version"])


def _from_micros(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def check_beginning(trail: Trail) -> None:
    first = read_commit_records(trail).orderBy("sequence").select("baseline", "version").limit(1).collect()[0]
    if not first["baseline"] and first["version"] != 0:
        raise ConfigError(
            f"the trail begins with the changes of version {first['version']}: earlier rows of the table are not in it",
            hint="a trail that begins with `start: snapshot` has a baseline",
        )


def filter_period(rows: DataFrame, since: dt.datetime | None, until: dt.datetime | None) -> DataFrame:
    from pyspark.sql import functions as F

    if since is not None:
        rows = rows.where(F.col("committed_at") >= F.lit(parse_timestamp(since, name="since")))
    return rows if until is None else rows.where(F.col("committed_at") < F.lit(parse_timestamp(until, name="until")))

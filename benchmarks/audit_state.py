"""What the questions about the audit trail share: a source of twenty mixed columns, trails of it, what they have to hold.

Every trail is signed, and its checkpoints go to a folder outside. Contents: the payload has to end with the feed's own
digest, in no order: the number of rows, and the sum of Spark's 64-bit hashes of their values, version and change type.
And the trail has to be intact, by the full verification.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.signing.signer import Signer
from audit.trail.tables import PAYLOAD
from benchmarks.lab import Lab
from cdf import ChangeFeed, Limits, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail

__all__ = [
    "Source",
    "bytes_of",
    "check_contents",
    "check_intact",
    "feed_rows",
    "many_commits",
    "one_commit",
    "pipeline_to",
    "processor_seconds",
    "signer",
    "trail_at",
    "write_commits",
]


class Source(NamedTuple):
    """Those commits of a table that a trail is to take, and how many events they are. Version 0 has no rows."""

    path: str
    first: int
    last: int
    events: int


def columns(generation: str) -> str:
    """The twenty columns for a column ``id``; another generation has other values in nineteen of them."""
    h = f"xxhash64(id, {generation})"
    return f"""id, cast(pmod({h}, 1000) as int) as region, pmod({h}, 1000000007) as account,
        concat('name ', pmod({h}, 1000003)) as name, concat('city ', pmod({h}, 997)) as city,
        concat('street ', pmod({h}, 99991)) as street, concat(pmod({h}, 9999999), '@example.org') as mail,
        substring(sha2(cast({h} as string), 256), 1, 20) as reference, concat('state ', pmod({h}, 7)) as state,
        cast(pmod({h}, 100000000) as decimal(18,2)) as amount, cast(pmod({h}, 10000) as decimal(10,4)) as rate,
        {h} / 7e17 as score, cast({h} / 3e17 as float) as weight, {h} % 3 = 0 as active, {h} % 5 = 0 as known,
        timestamp_micros(1700000000000000 + pmod({h}, 100000000000000)) as seen,
        timestamp_micros(1600000000000000 + pmod({h}, 90000000000000)) as made,
        date_add(date'1970-01-01', cast(pmod({h}, 20000) as int)) as born,
        case when {h} % 4 = 0 then cast(pmod({h}, 100) as smallint) end as grade,
        case when {h} % 2 = 0 then concat('note ', {h}) end as note"""


def one_commit(lab: Lab, *, updates: bool) -> Source:
    """Half a million events (QUICK: 20,000): the rows of version 1, or both images of the updates of version 2."""
    rows = 20_000 if lab.quick else 500_000

    def make() -> str:
        path = _empty(lab, "audit-one-commit")
        _insert(lab, path, 0, rows)
        lab.spark.sql(
            f"merge into delta.`{path}` t using (select {columns('1')} from range(0, {rows}, 2)) s on t.id = s.id"
            " when matched then update set *"
        )
        return path

    path = lab.once("audit_one_commit", make)
    return Source(path, 2, 2, rows) if updates else Source(path, 1, 1, rows)


def many_commits(lab: Lab) -> Source:
    """As many rows, inserted by 50 commits."""
    commits, rows = (5, 4_000) if lab.quick else (50, 10_000)

    def make() -> str:
        path = _empty(lab, "audit-many-commits")
        for number in range(commits):
            _insert(lab, path, number * rows, rows)
        return path

    return Source(lab.once("audit_many_commits", make), 1, commits, commits * rows)


def _empty(lab: Lab, name: str) -> str:
    path = str(lab.folder / name)
    lab.spark.sql(
        f"create table delta.`{path}` using delta tblproperties (delta.enableChangeDataFeed=true)"
        f" as select {columns('0')} from range(0)"
    )
    return path


def _insert(lab: Lab, path: str, low: int, rows: int) -> None:
    files = max(1, rows // 100_000)
    lab.spark.sql(f"insert into delta.`{path}` select {columns('0')} from range({low}, {low + rows}, 1, {files})")


def write_commits(path: Path, commits: Iterable[pa.Table]) -> None:
    """One commit of each, by delta-rs, which is fast."""
    from deltalake import write_deltalake

    for rows in commits:
        write_deltalake(path, rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})


# ── trails ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def signer(lab: Lab) -> Signer:
    return lab.once("audit_signer", lambda: Signer.generate("bench.example.org/trail"))


def _sink(lab: Lab, folder: Path, *, signed: bool = True) -> DeltaAuditSink:
    outside = lab.folder / "audit-anchor"
    outside.mkdir(exist_ok=True)
    anchor = NamedAnchor("a folder", FileAnchor(outside))
    return DeltaAuditSink(
        str(folder), spark=lab.spark, signer=signer(lab) if signed else None, anchors=[anchor] if signed else []
    )


def trail_at(lab: Lab, folder: Path) -> Trail:
    return _sink(lab, folder).trail


def pipeline_to(
    lab: Lab, path: str, folder: Path, *, start: int, limits: Limits | None = None, signed: bool = True
) -> Pipeline:
    """From version ``start`` on into the trail in that folder."""
    feed = lab.once(f"feed of {path}", lambda: ChangeFeed(lab.spark, path))
    return Pipeline(feed, _sink(lab, folder, signed=signed), key=["id"], start=start, name=folder.name, limits=limits)


def feed_rows(lab: Lab, path: str, first: int, last: int) -> DataFrame:
    """What Spark itself reads of these commits."""
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", first).option("endingVersion", last).load(path)


def check_contents(lab: Lab, source: Source, folder: Path) -> None:
    """The payload holds the feed's rows, each with its version and change type."""
    about = ("_change_type", "_commit_version")
    own = lab.once(
        f"audit digest of {source}",
        lambda: _digest(feed_rows(lab, *source[:3]).drop("_commit_timestamp"), about),
    )
    payload = lab.spark.read.format("delta").load(f"{folder}/{PAYLOAD}")
    found = _digest(payload.select("row.*", "change_type", "version"), ("change_type", "version"))
    if found != own or found[0] != source.events:
        raise AssertionError(f"{folder.name}: the payload has {found}, and the feed {own}")


def _digest(rows: DataFrame, last: tuple[str, str]) -> tuple[int, Any]:
    names = ", ".join([*(name for name in rows.columns if name not in last), *last])
    row = rows.selectExpr("count(*)", f"sum(cast(xxhash64({names}) as decimal(20, 0)))").collect()[0]
    return row[0], row[1]


def check_intact(lab: Lab, folder: Path, events: int) -> None:
    found, _ = trail_at(lab, folder).verify()
    if not found.intact or (found.events, found.values) != (events, events):
        raise AssertionError(
            f"{folder.name}: {found.events} events and {found.values} values of {events}; {found.findings}"
        )


# ── what it takes ────────────────────────────────────────────────────────────────────────────────────────────────────


def bytes_of(folder: Path) -> int:
    """On disk, with the log."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def processor_seconds(lab: Lab) -> float:
    """Up to now, of this process, of Java and of the Python below it, also where it has ended. Linux alone tells it."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # one that has just ended is in its parent's sum
            told = file.read_text().rpartition(")")[2].split()
            process = int(file.parent.name)
            parents[process], ticks[process] = int(told[1]), sum(map(int, told[11:15]))
    jvm: Any = lab.spark._jvm
    counted = {int(jvm.java.lang.ProcessHandle.current().pid())}
    while below := {process for process, parent in parents.items() if parent in counted} - counted:
        counted |= below
    return sum(ticks[process] for process in counted | {os.getpid()}) / os.sysconf("SC_CLK_TCK")

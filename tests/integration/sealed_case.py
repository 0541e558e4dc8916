"""A trail with sealed columns: letters between people, some of whom are customers."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from audit.audit_trail import Trail
from audit.encryption.column_groups import PersonColumns
from audit.encryption.decrypt import decrypt_rows
from audit.encryption.encrypt import ColumnEncryption
from audit.encryption.key_registry import Registry
from audit.encryption.key_registry.tables import DEFINITIONS
from audit.encryption.root_keys import FileRoot
from audit.trail.column_history import SEALED, Column
from audit.trail.events import build_events
from audit.trail.row_hashes import hash_rows
from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.intruder import rewrite

Row: TypeAlias = dict[str, Any]

CLASSES = (("contact", ("email", "Phones")), ("billing", ("paid",)))
SENDER = PersonColumns("customer", "id", "sender", "exact", CLASSES)
RECIPIENT = PersonColumns("customer", "id", "recipient", "exact", (("contact", ("to_email", "recipient")),))


class Trailed:
    """Letters between people; 7 and 8 are customers, and who is NULL is nobody."""

    def __init__(self, spark: SparkSession, folder: Path, pg: Pg, *, small_window_bytes: int = 2**20) -> None:
        self.spark, self.pg, self.folder, self.root = spark, pg, folder, FileRoot.generate()
        columns = (
            "no long, sender long, email string, phones map<string, array<int>>, paid decimal(9, 2), recipient long, "
        )
        self.table = Table(spark, f"{folder}/letters", columns + "to_email string, day date")
        self.registry().prepare()
        self.small_window_bytes = small_window_bytes
        self.name_classes(SENDER, RECIPIENT)

    def copied(self, folder: Path, pg: Pg, *, trail: bool = True) -> Trailed:
        """The same letters, keys and, unless it is left out, trail in another folder and schema, to be changed there."""
        other = copy.copy(self)
        other.folder, other.pg = folder, pg
        for name in ("letters", "trail")[: 1 + trail]:
            shutil.copytree(self.folder / name, folder / name)
        other.table = Table.at(self.spark, f"{folder}/letters")
        other.registry().prepare()
        names = list(DEFINITIONS)
        pg.query("truncate " + ", ".join(names))
        for name in names:
            pg.query(f"insert into {name} overriding system value select * from {self.pg.schema}.{name}")
        other.name_classes(*self.people)
        return other

    def name_classes(self, *people: PersonColumns, **settings: Any) -> None:
        """From now on these are sealed. ``settings``: others of the sink."""
        self.people = people
        self.sink = DeltaAuditSink(
            f"{self.folder}/trail",
            spark=self.spark,
            small_window_bytes=self.small_window_bytes,
            sealing=ColumnEncryption(people, self.registry) if people else None,
            **settings,
        )
        self.pipeline = Pipeline(ChangeFeed(self.spark, self.table.path), self.sink, key=["no"], start="earliest")

    def seal_earlier(self) -> None:
        self.sink.encrypt_earlier_rows(self.table.path, ("no",), {"ticket": "SEC-1"})

    def registry(self) -> Registry:
        return Registry(self.pg.dsn, self.root, schema=self.pg.schema)

    def write(self) -> None:
        self.table.sql(
            "insert into {t} values "
            "(1, 7, 'canary7@x.org', map('home', array(4711, null)), 12.50, 8, 'canary8@x.org', date'2026-11-24'), "
            "(2, 8, 'canary8@x.org', null, null, null, 'nobody@x.org', null), "
            "(3, null, 'shop@x.org', map(), 1.00, 7, 'canary7@x.org', date'1969-01-01')",
            "update {t} set paid = 99.99 where no = 1",
            "delete from {t} where no = 2",
        )

    def payload(self) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.sink.path}/payload")

    def columns(self) -> list[tuple[int, list[Column]]]:
        return [(0, list(self.sink.trail.columns()))]

    def read(self) -> list[dict[str, Any]]:
        """The rows of the payload as whoever has the registry reads them."""
        rows = decrypt_rows(self.payload(), self.columns(), self.registry().read_states).orderBy(
            "version", "row.no", "change_type"
        )
        return [
            {"version": row["version"], "unreadable": row["unreadable"], **row["row"].asDict()}
            for row in rows.collect()
        ]

    def plain(self) -> list[dict[str, Any]]:
        """What they are in the source."""
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        rows = feed.load(self.table.path).orderBy("_commit_version", "no", "_change_type").collect()
        names = self.spark.read.format("delta").load(self.table.path).columns
        return [
            {"version": row["_commit_version"], "unreadable": None, **{name: row[name] for name in names}, SEALED: None}
            for row in rows
        ]

    def reader(self) -> Trail:
        """Who has the keys."""
        return Trail(self.spark, self.sink.path, states=self.registry().read_states)

    def intact(self) -> bool:
        return self.sink.trail.verify()[0].intact

    def token(self, customer: int) -> bytes:
        [token] = self.registry().find_tokens("customer", [[("id", str(customer))]])
        assert token is not None
        return token

    def shred(self, customer: int, *, keeping: tuple[str, ...] = ()) -> None:
        self.registry().destroy_keys([self.token(customer)], keeping=keeping, run="er-1")

    def bytes(self) -> bytes:
        return b"".join(one.read_bytes() for one in Path(self.sink.path).rglob("*") if one.is_file())


def cut_off(trailed: Trailed) -> None:
    """A runner that dies before it writes its records."""

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connectors.delta_audit.write.window_writer.append_records", dies)
        with pytest.raises(KeyboardInterrupt):
            trailed.pipeline.run()


def edited(trailed: Trailed, table: str, edit: Callable[[Row], Iterable[Row]]) -> None:
    """Somebody who may write to the storage puts other rows into the place of each row."""

    def of(rows: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([one for row in rows.to_pylist() for one in edit(row)], schema=rows.schema)

    assert rewrite(f"{trailed.sink.path}/{table}", of)


def rehashed(trailed: Trailed, columns: Sequence[Column], changed: Callable[[Row], bool]) -> None:
    """The rows of the payload that are ``changed`` get the hash of what they are now."""

    def of(rows: pa.Table) -> pa.Table:
        own = hash_rows(rows.combine_chunks().to_batches()[0], columns)
        told = [
            {**row, "row_hash": new if changed(row) else row["row_hash"]}
            for row, new in zip(rows.to_pylist(), own, strict=True)
        ]
        return pa.Table.from_pylist(told, schema=rows.schema)

    assert rewrite(f"{trailed.sink.path}/payload", of)


def forged_events(trailed: Trailed, version: int | None = None) -> None:
    """The events, of one version or of all, become those that follow from the payload."""
    path = f"{trailed.sink.path}/payload"
    payload = trailed.spark.read.format("delta").load(path).toArrow()
    table_id = trailed.pipeline.feed.log.metadata().table_id
    new = {(one["version"], one["id"]): one for one in build_events(payload, table_id).to_pylist()}

    def edit(row: Row) -> list[Row]:
        if version not in (None, row["version"]):
            return [row]
        told = new[row["version"], row["id"]]
        return [{**row, "row_hash": told["row_hash"], "leaf": told["leaf"]}]

    edited(trailed, "events", edit)

"""What a trail with sealed columns answers: to who has the keys, to who has none, and when a key is gone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from psycopg import sql
from pyspark.sql import DataFrame

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.audit_trail import Trail
from audit.encryption.encrypt import ColumnEncryption
from audit.encryption.key_registry import KeyState
from audit.errors import unreadable_trail
from audit.proof import check
from audit.queries import view as views
from audit.queries.questions import (
    as_of,
    column_changes,
    count_hidden_keys,
    deletes,
    diff,
    history,
    readings,
    record_as_of,
)
from audit.queries.sql_export import view_sql
from audit.queries.view import view
from audit.reconciliation.comparison import reconcile
from audit.signing.signer import Signer
from audit.trail.tables import TABLES
from cdf.errors import ConfigError
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_sealed_states import SealedStates
from tests.integration.sealed_case import RECIPIENT, SENDER, Trailed

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def trailed(sealed_states: SealedStates, tmp_path: Path, pg: Pg) -> Trailed:
    """Three versions of letters, in a sealed trail."""
    return sealed_states.sealed().copied(tmp_path / "first", pg)


def told(rows: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Values, or why they are not shown."""
    return [
        tuple(
            (row["unreadable"] or {}).get(name, (row["row"] if "row" in rows.columns else row)[name]) for name in names
        )
        for row in rows.collect()
    ]


def test_who_has_no_keys_sees_that_there_is_something(sealed_states: SealedStates) -> None:
    trailed = sealed_states.sealed()
    trail = trailed.sink.trail
    assert told(history(trail, {"no": 3}), "email", "to_email", "day")[0][:2] == ("shop@x.org", "[sealed]")
    assert (
        told(history(trail, {"no": 1}), "sender", "email", "paid", "recipient")
        == [(7, "[sealed]", "[sealed]", "[sealed]")] * 3
    )
    assert told(record_as_of(trail, {"no": 1}, 2), "no", "email") == [(1, "[sealed]")]
    assert sorted(told(as_of(trail, ["no"], 1), "no", "email")) == [(1, "[sealed]"), (2, "[sealed]"), (3, "shop@x.org")]
    assert told(deletes(trail), "email", "to_email") == [("[sealed]", "nobody@x.org")]
    for asked in (
        lambda: history(trail, {"email": "canary7@x.org"}),
        lambda: record_as_of(trail, {"email": "canary7@x.org"}, 1),
        lambda: as_of(trail, ["email"], 1),
        lambda: diff(trail, ["no"], 1, 2),
        lambda: column_changes(trail, ["no"], "paid"),
    ):
        with pytest.raises(ConfigError, match="encrypted"):
            asked()
    found = reconcile(trail, trailed.pipeline)
    assert (found.equal, [one.reason for one in found.not_compared]) == (True, ["sealed"])

    # Other engines tell which columns are sealed
    columns = trail.columns()
    view = trailed.spark.sql(view_sql("spark", trail.path, columns).partition(" as\n")[2]).collect()
    assert {row["row.email"] for row in view} == {None, "shop@x.org"}
    sealed = {row["row.no"]: row["sealed_columns"] for row in view if row["version"] == 1}
    assert sealed[3] == ["recipient", "to_email"]
    assert sealed[2] == ["email", "phones", "paid"]
    engine = QueryBuilder()
    for name in TABLES:
        engine.register(name, DeltaTable(f"{trail.path}/{name}"))
    table = pa.table(engine.execute(view_sql("delta-rs", trail.path, columns)))
    rows = {row["row.no"]: row["sealed_columns"] for row in table.to_pylist() if row["version"] == 1}
    assert [group["columns"] for group in rows[2]] == [["email", "phones"], ["paid"]]


def test_who_has_the_keys_gets_the_same_answers_as_ever(sealed_states: SealedStates) -> None:
    trailed = sealed_states.sealed()
    trail = trailed.reader()
    assert (
        told(history(trail, {"email": "canary7@x.org"}), "no", "email", "to_email")
        == [(1, "canary7@x.org", "canary8@x.org")] * 3
    )
    assert sorted(told(as_of(trail, ["email"], 1), "no", "email")) == [
        (1, "canary7@x.org"),
        (2, "canary8@x.org"),
        (3, "shop@x.org"),
    ]
    [changed] = column_changes(trail, ["no"], "paid").collect()
    assert (str(changed["old_value"]), str(changed["new_value"])) == ("12.50", "99.99")
    assert [row["difference"] for row in diff(trail, ["no"], 1, 3).orderBy("key.no").collect()] == [
        "changed",
        "removed",
    ]
    found = reconcile(trail, trailed.pipeline)
    assert (found.equal, found.not_compared) == (True, ())


def test_who_is_looked_for_by_whose_rows_they_are_is_found_by_their_own_keys(sealed_states: SealedStates) -> None:
    """Rows of others are not opened to look whether they are meant."""
    trailed = sealed_states.sealed()
    asked: list[set[bytes]] = []

    def states(ids: Iterable[bytes]) -> Mapping[bytes, KeyState]:
        asked.append(set(ids))
        return trailed.registry().read_states(asked[-1])

    own = ColumnEncryption((SENDER, RECIPIENT), trailed.registry)
    trail = Trail(trailed.spark, trailed.sink.path, states=states, sealing=own)
    assert told(history(trail, {"recipient": 7}), "no", "recipient", "to_email") == [(3, 7, "canary7@x.org")]
    [key] = trailed.registry().find_keys([(trailed.token(7), "contact")]).values()
    assert set().union(*asked) == {key.key_id}
    assert told(history(trail, {"recipient": 4711}), "no") == []
    assert told(history(trailed.reader(), {"recipient": 7}), "no", "recipient", "to_email") == [(3, 7, "canary7@x.org")]
    # By two columns of which the other is sealed
    assert told(history(trail, {"sender": 7, "email": "canary7@x.org"}), "no") == [(1,)] * 3
    assert told(history(trail, {"recipient": 7, "to_email": "canary7@x.org"}), "no") == [(3,)]


def test_a_person_is_found_under_what_their_column_is_called_now_and_in_rows_that_are_not_sealed(
    trailed: Trailed,
) -> None:
    trailed.table.sql(
        "alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')",
        "alter table {t} rename column recipient to addressee",
        "insert into {t} values (6, null, null, null, null, 8, 'canary8@y.org', null)",
    )
    addressee = replace(RECIPIENT, column="addressee", classes=(("contact", ("to_email", "addressee")),))
    trailed.name_classes(SENDER, addressee)
    trailed.pipeline.run()
    own = ColumnEncryption((SENDER, addressee), trailed.registry)
    trail = Trail(trailed.spark, trailed.sink.path, states=trailed.registry().read_states, sealing=own)
    assert told(record_as_of(trail, {"addressee": 7}, 6), "no", "addressee", "to_email") == [(3, 7, "canary7@x.org")]
    assert told(record_as_of(trail, {"addressee": 8}, 6), "no", "addressee") == [(6, 8)]

    # Rows whose person is in them in plain text are found as well
    trailed.name_classes()
    trailed.table.sql("insert into {t} values (5, 7, null, null, null, 8, 'canary8@z.org', null)")
    trailed.pipeline.run()
    assert told(history(trail, {"addressee": 8}), "no", "to_email") == [(6, "canary8@y.org"), (5, "canary8@z.org")]
    assert told(history(trail, {"addressee": 8, "to_email": "canary8@z.org"}), "no") == [(5,)]
    # A history has a column by the name of its time
    assert told(history(trail, {"recipient": 8}), "no") == [(1,)] * 3


def test_records_of_people_who_were_erased_are_not_taken_for_one(trailed: Trailed) -> None:
    """Where the key of the table is sealed, nobody can tell them apart."""
    person = replace(SENDER, classes=(("contact", ("sender", "email")),))
    trailed.name_classes(person)
    trailed.table.sql(
        "insert into {t} values (5, 21, 'canary21@x.org', null, 1, null, null, null), "
        "(6, 22, 'canary22@x.org', null, 2, null, null, null), (7, 23, 'canary23@x.org', null, 3, null, null, null)",
        "update {t} set paid = paid + 100 where no > 4",
    )
    trailed.pipeline.run()
    for customer in (21, 22):
        trailed.shred(customer)
    trail, last = trailed.reader(), trailed.pipeline.feed.log.latest()
    there = as_of(trail, ["sender"], last).where("no > 4")
    assert told(there, "no", "sender", "email") == [(7, 23, "canary23@x.org")]
    [changed] = diff(trail, ["sender"], last - 1, last).collect()
    assert (changed["difference"], changed["key"]["sender"], changed["after"]["no"]) == ("changed", 23, 7)
    [changed] = column_changes(trail, ["sender"], "paid").where("version > 3 and key.sender > 8").collect()
    assert (changed["key"]["sender"], str(changed["new_value"])) == (23, "103.00")
    assert [count_hidden_keys(trail, ["sender"], at) for at in (last - 2, last - 1, last, None)] == [0, 2, 6, 6]
    assert count_hidden_keys(trail, ["no"]) == 0


def test_a_value_that_was_erased_is_told_where_states_are_compared(
    trailed: Trailed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trailed.table.sql("update {t} set email = 'canary7@y.org' where no = 1")
    trailed.table.sql("update {t} set paid = 1 where no = 1")
    trailed.pipeline.run()
    last, trail = trailed.pipeline.feed.log.latest(), trailed.reader()
    before = trailed.payload().collect()
    # Notebooks that hold views, one of them for four minutes and one for five
    with monkeypatch.context() as patch:
        minutes = {}
        for age in (4, 5):
            patch.setattr(views, "time", SimpleNamespace(time=lambda age=age: time.time() - 60 * age))
            minutes[age] = view(trail)
    assert "canary7@x.org" in {row["row"]["email"] for row in minutes[4].collect()}
    # The proof of a row has what is sealed in it and not what that is
    signer = Signer.generate("example.org/letters")
    signed = Trail(trailed.spark, trail.path, signer=signer, anchors=[NamedAnchor("folder", FileAnchor(tmp_path))])
    signed.checkpoint(accept=True)
    [event] = history(signed, {"no": 3}).collect()
    proof = signed.prove(event["version"], event["index"], show_row=True)

    trailed.shred(7, keeping=("billing",))
    [changed] = diff(trail, ["no"], 1, last).where("key.no = 1").collect()
    assert changed["difference"] == "changed"
    assert {name for name, why in changed["unreadable"].items() if why.startswith("[erased ")} == {
        f"{side}.{name}" for side in ("before", "after") for name in ("email", "phones")
    }
    [rewritten] = diff(trail, ["no"], last - 2, last - 1).collect()
    assert (rewritten["difference"], rewritten["unreadable"]["after.email"][:8]) == ("unknown", "[erased ")
    [who] = column_changes(trail, ["no"], "email").collect()
    assert (who["version"], who["certain"]) == (last - 1, True)
    assert {name: why[:8] for name, why in who["unreadable"].items()} == dict.fromkeys(
        ["old_value", "new_value"], "[erased "
    )
    paid = column_changes(trail, ["no"], "paid").where("key.no = 1").collect()
    assert [(str(one["new_value"]), one["certain"], one["unreadable"]) for one in paid] == [
        ("99.99", True, None),
        ("1.00", True, None),
    ]

    trailed.shred(7)
    shown = told(history(trail, {"no": 1}), "email", "to_email")
    assert [(email[:8], to_email) for email, to_email in shown] == [("[erased ", "canary8@x.org")] * 7
    # Nothing is found by what is erased
    assert history(trail, {"email": "canary7@x.org"}).count() == 0
    assert {row["row"]["no"] for row in history(trail, {"paid": None}).collect()} == {2}
    found = reconcile(trail, trailed.pipeline)
    assert (found.equal, [one.reason for one in found.not_compared]) == (True, ["sealed"])
    assert trailed.payload().collect() == before

    row = check(proof, [str(signer.verifier)]).row
    assert row is not None
    assert row["email"] == "shop@x.org"
    assert "to_email" not in row
    assert [one["columns"] for one in row["deltarelay_sealed"]] == [["recipient", "to_email"]]
    assert signed.prove(event["version"], event["index"], show_row=True) == proof

    # The keys that the older notebook's view has open nothing any more
    with pytest.raises(Exception, match="KeysTooOld") as refused:
        minutes[5].collect()
    assert "five minutes" in unreadable_trail(trail.path, refused.value).message
    assert "canary" not in str(refused.value)
    assert all(row["unreadable"]["email"].startswith("[erased ") for row in view(trail).where("row.no = 1").collect())


def test_a_value_is_told_of_by_the_name_and_place_under_which_it_is_shown(trailed: Trailed) -> None:
    trailed.table.sql(
        "alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')",
        "alter table {t} rename column email to mail",
        "insert into {t} (no, sender, mail) values (6, 7, 'canary7@y.org')",
    )
    trailed.name_classes(replace(SENDER, classes=(("contact", ("mail",)),)))
    trailed.pipeline.run()
    last = trailed.pipeline.feed.log.latest()
    closed, expected = trailed.sink.trail, {"no": (1, 6), "mail": ("[sealed]", "[sealed]")}
    asked = as_of(closed, ["no"], last).where("sender = 7")
    assert sorted(told(asked, "no", "mail")) == list(zip(*expected.values(), strict=True))
    assert told(record_as_of(closed, {"no": 1}, last), "mail") == [("[sealed]",)]
    with pytest.raises(ConfigError, match="encrypted"):
        as_of(closed, ["mail"], last)
    # One that has another type by now
    trailed.table.sql("alter table {t} drop column paid", "alter table {t} add column paid string")
    trailed.table.sql("insert into {t} (no, paid) values (7, 'much')")
    trailed.pipeline.run()
    [first, *_] = history(closed, {"no": 1}).collect()
    assert first["unreadable"]["paid__1"] == "[sealed]"
    assert "paid" not in first["unreadable"]

    trailed.shred(7)
    asked = as_of(trailed.reader(), ["no"], last).where("sender = 7")
    assert [one[0][:8] for one in told(asked, "mail")] == ["[erased "] * 2
    assert count_hidden_keys(trailed.reader(), ["mail"], last) == 4


def test_who_reads_while_it_is_sealed_sees_what_was_there(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    trailed.name_classes(SENDER)
    trailed.table.sql("insert into {t} values (4, 9, 'canary9@x.org', null, null, 8, 'canary8@x.org', null)")
    trailed.pipeline.run()
    trailed.name_classes(SENDER, RECIPIENT)
    real = views.read_values

    def read_values(*of: Any) -> DataFrame:
        """The payload is chosen already; then its rows are sealed, and a record comes after that."""
        trailed.seal_earlier()
        trailed.table.sql("insert into {t} (no) values (5)")
        trailed.pipeline.run()
        return real(*of)

    with monkeypatch.context() as patch:
        patch.setattr(views, "read_values", read_values)
        rows = view(trailed.reader()).where("row.no = 4")
    assert told(rows, "email", "to_email") == [("canary9@x.org", "canary8@x.org")]
    assert told(view(trailed.reader()).where("row.no = 4"), "to_email") == [("canary8@x.org",)]


def test_every_reading_is_told_once_also_of_a_registry_that_counts_anew(trailed: Trailed) -> None:
    registry, trail = trailed.registry(), trailed.sink.trail

    def read(purpose: str) -> None:
        registry.open_reading(trail=trail.path, reader="r", purpose=purpose, question="history")([])
        trailed.pipeline.run()

    def in_registry(statement: str) -> None:
        with psycopg.connect(trailed.pg.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(reading=sql.Identifier(trailed.pg.schema, "reading")))

    read("before")
    in_registry("truncate {reading} restart identity")
    read("after")
    assert sorted(row["purpose"] for row in readings(trail).collect()) == ["after", "before"]
    in_registry("update {reading} set noted_at = null")  # of a runner that died between the two
    trailed.pipeline.run()
    assert readings(trail).count() == 2
    trailed.name_classes(registry=trailed.registry)  # what is sealed can still be read
    read("later")
    assert readings(trail).count() == 3
    assert registry.list_new_readings(trail.path) == []
    assert trailed.intact()

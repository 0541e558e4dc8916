"""A trail whose personal columns are sealed under a key of each person: unreadable without it, and verified all the same."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from audit.columns import GROUPS, SEALED, kept
from audit.keys.opening import opened, shut
from audit.keys.sealing import Sealing
from audit.queries import as_of, history
from audit.rows import event_rows
from audit.verify.values import hashes
from audit.view import view
from cdf import ChangeFeed
from cdf.errors import RowRejected, TargetNotReady, VerificationError
from tests.fixtures.fix_postgres import Pg
from tests.integration.sealed_case import RECIPIENT, SENDER, Trailed

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def trailed(spark: SparkSession, tmp_path: Path, pg: Pg) -> Trailed:
    return Trailed(spark, tmp_path, pg)


def texts_of(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [(row["unreadable"] or {}).get(name, row[name]) for row in rows]


@pytest.mark.parametrize("small_window_bytes", [2**20, 0], ids=["driver", "tasks"])
def test_bytes_that_are_no_text_name_nobody(
    spark: SparkSession, tmp_path: Path, pg: Pg, small_window_bytes: int
) -> None:
    """Two people whose identifiers are not UTF-8 would share one key: the erasure of one would be that of both."""
    trailed = Trailed(spark, tmp_path, pg, small_window_bytes=small_window_bytes)
    trailed.name_classes(replace(SENDER, column="email", classes=(("contact", ("Phones",)),)))
    trailed.table.sql("insert into {t} (no, email) select 1, cast(X'61FF' as string)")
    with pytest.raises(RowRejected, match="column 'email' at version 1 holds bytes that are not UTF-8") as refused:
        trailed.pipeline.run()
    assert refused.value.__context__ is None


@pytest.mark.parametrize("small_window_bytes", [2**20, 0], ids=["driver", "tasks"])
def test_whoever_has_the_keys_reads_what_was_written(
    spark: SparkSession, tmp_path: Path, pg: Pg, small_window_bytes: int
) -> None:
    trailed = Trailed(spark, tmp_path, pg, small_window_bytes=small_window_bytes)
    trailed.write()
    trailed.pipeline.run()
    assert trailed.read() == trailed.plain()
    assert trailed.intact()

    raw = {row["row"]["no"]: row for row in trailed.payload().where("version = 1").collect()}
    sealed_of = {no: [(one["class"], list(one["columns"])) for one in row["row"][SEALED]] for no, row in raw.items()}
    of_sender = [("contact", ["email", "phones"]), ("billing", ["paid"])]
    assert sealed_of == {
        1: [*of_sender, ("contact", ["recipient", "to_email"])],
        2: of_sender,
        3: [("contact", ["recipient", "to_email"])],
    }
    assert [raw[1]["row"][name] for name in ("email", "phones", "paid", "recipient", "to_email")] == [None] * 5
    assert (raw[2]["row"]["to_email"], raw[3]["row"]["email"]) == ("nobody@x.org", "shop@x.org")  # nobody's
    assert raw[1]["row"]["sender"] == 7

    found = trailed.bytes() + "".join(row["plan"] for row in plans(trailed.payload())).encode()
    assert b"canary" not in found
    assert b"shop@x.org" in found  # the control
    names = {row["no"]: row["unreadable"] for row in shut(trailed.payload()).select("row.no", "unreadable").collect()}
    assert names[3] == dict.fromkeys(["recipient", "to_email"], "[sealed]")


def plans(frame: DataFrame) -> list[Mapping[str, str]]:
    return [{"plan": frame._jdf.queryExecution().toString()}]


def test_whoever_is_shredded_is_gone_for_readers_and_the_trail_verifies_as_before(trailed: Trailed) -> None:
    trailed.write()
    trailed.pipeline.run()
    before = trailed.payload().collect()
    trailed.shred(7, keeping=("billing",))
    rows = trailed.read()
    erased = re.compile(r"\[erased \d{4}-\d\d-\d\d, er-1\]")
    first = rows[0]
    assert {name for name, why in first["unreadable"].items() if erased.fullmatch(why)} == {"email", "phones"}
    assert (first["email"], first["phones"], str(first["paid"]), first["to_email"]) == (
        None,
        None,
        "12.50",
        "canary8@x.org",
    )
    assert set(rows[2]["unreadable"]) == {"recipient", "to_email"}  # 7 as the recipient of 3
    assert trailed.payload().collect() == before
    assert trailed.intact()

    trailed.shred(7)  # now that billing is not held any more
    assert set(trailed.read()[0]["unreadable"]) == {"email", "phones", "paid"}
    # Who comes back is somebody new
    gone = {bytes(one["token"]) for row in before for one in row["row"][SEALED] or ()} - {trailed.token(8)}
    trailed.table.sql("insert into {t} values (4, 7, 'again@x.org', null, 1, null, null, null)")
    trailed.pipeline.run()
    assert trailed.token(7) not in gone
    assert trailed.read()[-1]["email"] == "again@x.org"
    assert set(trailed.read()[0]["unreadable"]) == {"email", "phones", "paid"}
    assert trailed.intact()


def change(trailed: Trailed, where: str, values: dict[str, str]) -> None:
    DeltaTable.forPath(trailed.spark, f"{trailed.sink.path}/payload").update(where, values)


def test_a_changed_byte_is_tampering_and_no_erasure(trailed: Trailed) -> None:
    trailed.write()
    trailed.pipeline.run()
    trailed.shred(7)
    flipped = "transform(sealed, (one, at) -> if(at = 0, concat(one, x'00'), one))"
    change(trailed, "version = 1 and row.no = 1", {"sealed": flipped})
    assert texts_of(trailed.read(), "email")[0] == "[tampered]"
    [finding] = trailed.sink.trail.verify()[0].findings
    assert (finding.kind, finding.table, finding.version) == ("altered", "payload", 1)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"sealed": "cast(null as array<binary>)"}, "[removed]"),
        ({"sealed": "array(sealed[1], sealed[0], sealed[2])"}, "[tampered]"),
        ({"row": "without groups"}, "[tampered]"),
    ],
    ids=["taken away", "moved", "said to be nobody's"],
)
def test_what_is_sealed_stays_in_its_place(trailed: Trailed, values: dict[str, str], shown: str) -> None:
    trailed.write()
    trailed.pipeline.run()
    if "row" in values:
        values = {"row": row_with(trailed, "null")}
    change(trailed, "version = 1 and row.no = 1", values)
    rows = trailed.read()
    assert texts_of(rows, "email")[0] == shown
    assert not trailed.intact()


def test_who_takes_the_groups_away_leaves_no_empty_columns(trailed: Trailed) -> None:
    """Also for those who have no keys, and look at no hash."""
    trailed.write()
    trailed.pipeline.run()
    change(trailed, "version = 1 and row.no = 1", {"row": row_with(trailed, "null")})
    for trail in (trailed.sink.trail, trailed.reader()):
        [row] = view(trail).where("version = 1 and row.no = 1").collect()
        assert {row["unreadable"][name] for name in ("email", "paid", "to_email", "day")} == {"[tampered]"}


def test_a_row_under_a_key_that_is_gone_is_tampered_with_where_it_is_not_the_events(trailed: Trailed) -> None:
    """Whoever can write the payload can name another key, and take the hash anew."""
    trailed.write()
    trailed.pipeline.run()
    token = trailed.token(8)
    trailed.shred(8)
    gone = trailed.registry().gone([token])[0].hex()
    named = ", ".join(f"'{name}', {_forged(name, gone)}" for name in GROUPS.elementType.names)  # type: ignore[attr-defined]
    row = row_with(trailed, f"transform(row.{SEALED}, one -> named_struct({named}))")
    change(trailed, "version = 1 and row.no = 1", {"row": row})
    forged = trailed.payload().where("version = 1 and row.no = 1").toArrow().to_batches()[0]
    [own] = hashes(forged, trailed.sink.trail.columns())
    assert own is not None
    change(trailed, "version = 1 and row.no = 1", {"row_hash": f"X'{own.hex()}'"})
    assert texts_of(trailed.read(), "email")[0].startswith("[erased ")  # by what stands beside it it is whole
    for asked in (view(trailed.reader()), history(trailed.reader(), {"no": 1})):
        by_version = {row["version"]: row["unreadable"] for row in asked.where("row.no = 1").collect()}
        assert by_version[1]["email"] == "[tampered]"
        assert by_version[2]["to_email"].startswith("[erased ")
    assert not trailed.intact()


def _forged(name: str, key_id: str) -> str:
    return f"X'{key_id}'" if name == "key_id" else f"one.{name}"


def row_with(trailed: Trailed, groups: str) -> str:
    names = trailed.payload().schema["row"].dataType.names  # type: ignore[attr-defined]
    return "named_struct(" + ", ".join(f"'{one}', {groups if one == SEALED else f'row.{one}'}" for one in names) + ")"


def test_groups_of_another_form_are_not_taken_for_none(trailed: Trailed) -> None:
    trailed.write()
    trailed.pipeline.run()
    payload = f"delta.`{trailed.sink.path}/payload`"
    trailed.spark.sql(f"alter table {payload} add columns (row.{SEALED}.element.more string)")
    for asked in (
        lambda: view(trailed.sink.trail),
        lambda: history(trailed.reader(), {"no": 1}),
        lambda: as_of(trailed.reader(), ["no"], 1),
    ):
        with pytest.raises(VerificationError, match="form") as refused:
            asked()
        assert "audit verify" in str(refused.value.hint)
    assert not trailed.intact()


def test_rows_that_came_after_the_keys_were_asked_for_are_not_empty(trailed: Trailed) -> None:
    trailed.table.sql("insert into {t} values (2, 8, 'canary8@x.org', null, null, null, 'nobody@x.org', null)")
    trailed.pipeline.run()
    rows, held = opened(trailed.payload(), trailed.columns(), trailed.registry().states), view(trailed.reader())
    trailed.write()
    trailed.pipeline.run()
    told = {row["row"]["no"]: row["unreadable"] for row in rows.where("version = 2").collect()}
    if told:  # what is read of them is up to Delta
        assert {"email", "recipient", "to_email"} <= set(told[1])
    assert [row["row"]["email"] for row in held.collect()] == ["canary8@x.org"]


def test_what_has_no_record_yet_is_not_opened(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows yet which columns its hash was taken of."""
    trailed.write()
    trailed.pipeline.run()
    trailed.table.sql(
        "alter table {t} add columns (more string)",
        "insert into {t} values (4, 7, 'canary7@y.org', null, 1, null, null, null, 'x')",
    )
    with monkeypatch.context() as patch:
        patch.setattr("connectors.delta_audit.sink.append_records", dies)
        with pytest.raises(KeyboardInterrupt):
            trailed.pipeline.run()
    [row] = view(trailed.reader()).where("row.no = 4").collect()
    assert (row["row"]["sender"], row["unreadable"]["email"]) == (7, "[sealed]")
    trailed.pipeline.run()
    [row] = view(trailed.reader()).where("row.no = 4").collect()
    assert (row["row"]["email"], row["unreadable"]) == ("canary7@y.org", None)


def test_a_key_that_somebody_has_put_in_is_none(trailed: Trailed) -> None:
    trailed.write()
    trailed.pipeline.run()
    key_id = trailed.registry().keys([(trailed.token(7), "contact")])[trailed.token(7), "contact"].key_id
    states = trailed.registry().states([key_id])

    def told(key: bytes | None) -> Any:
        return lambda ids: {**trailed.registry().states(ids), key_id: replace(states[key_id], key=key)}

    def shown(states: Any) -> str:
        rows = opened(trailed.payload(), trailed.columns(), states).where("version = 1 and row.no = 1")
        return str(rows.collect()[0]["unreadable"]["email"])

    assert shown(told(os.urandom(32))) == "[wrong key]"
    assert shown(lambda _: {}) == "[key missing]"


def test_nothing_is_written_while_it_is_not_known_whose_a_row_is(trailed: Trailed) -> None:
    trailed.write()
    trailed.pipeline.run()
    trailed.table.sql("alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')")
    trailed.table.sql("alter table {t} drop column sender")
    trailed.table.sql("insert into {t} (no, email) values (9, 'canary9@x.org')")
    with pytest.raises(Exception, match="sender"):
        trailed.pipeline.run()
    assert b"canary9" not in trailed.bytes()


def test_a_window_that_was_cut_off_is_taken_up(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    trailed.write()
    with monkeypatch.context() as patch:
        patch.setattr("connectors.delta_audit.sink.append_records", dies)
        with pytest.raises(KeyboardInterrupt):
            trailed.pipeline.run()
    assert trailed.payload().count() == 6
    trailed.shred(8)  # meanwhile
    trailed.pipeline.run()
    assert trailed.payload().count() == 6
    assert trailed.intact()
    assert trailed.read()[0]["email"] == "canary7@x.org"
    assert set(trailed.read()[0]["unreadable"]) == {"recipient", "to_email"}


def test_a_window_that_somebody_else_has_put_there_is_not(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    trailed.write()
    with monkeypatch.context() as patch:
        patch.setattr("connectors.delta_audit.sink.append_records", dies)
        with pytest.raises(KeyboardInterrupt):
            trailed.pipeline.run()
    change(trailed, "version = 1 and row.no = 1", {"sealed": "transform(sealed, one -> x'00')"})
    with pytest.raises(TargetNotReady, match="no runner has left"):
        trailed.pipeline.run()


def dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def cut_off(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that dies before it writes its records."""
    with monkeypatch.context() as patch:
        patch.setattr("connectors.delta_audit.sink.append_records", dies)
        with pytest.raises(KeyboardInterrupt):
            trailed.pipeline.run()


def goes_on(trailed: Trailed) -> None:
    trailed.pipeline.run()
    assert trailed.payload().count() == 6
    trailed.table.sql("insert into {t} values (4, 7, 'canary7@y.org', null, 1, null, null, null)")
    trailed.pipeline.run()
    assert trailed.read() == trailed.plain()
    assert trailed.intact()


def test_a_window_from_before_a_class_was_named_is_finished_as_it_was_written(
    trailed: Trailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    trailed.name_classes()
    trailed.write()
    cut_off(trailed, monkeypatch)
    trailed.name_classes(SENDER, RECIPIENT)
    goes_on(trailed)
    assert trailed.payload().where(f"row.{SEALED} is not null").select("version").distinct().collect() == [(4,)]


def test_a_sealed_window_is_finished_where_no_class_is_named_any_more(
    trailed: Trailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    trailed.write()
    cut_off(trailed, monkeypatch)
    trailed.name_classes()
    with pytest.raises(TargetNotReady, match="were written sealed"):  # without keys nobody can compare them
        trailed.pipeline.run()
    trailed.name_classes(registry=trailed.registry)
    goes_on(trailed)
    assert trailed.payload().where(f"version < 4 and row.{SEALED} is not null").count() == 6


FORGED = [
    (
        {"row.email": "'made-up@x.org'"},
        "version = 1 and row.no = 3",
    ),  # nobody's address, in a row of nobody who is erased
    ({"row.email": "'made-up@x.org'"}, "version = 1 and row.no = 2"),  # beside what is erased
    ({"row.day": "date'2001-01-01'"}, "version = 1 and row.no = 2"),
]


@pytest.mark.parametrize(("values", "where"), FORGED, ids=["another's", "beside it", "another column"])
def test_what_is_erased_hides_no_forgery_in_a_window_that_was_cut_off(
    trailed: Trailed, monkeypatch: pytest.MonkeyPatch, values: dict[str, str], where: str
) -> None:
    """Consistent in itself: every hash is right."""
    trailed.write()
    cut_off(trailed, monkeypatch)
    trailed.shred(8)
    source = ChangeFeed(trailed.spark, trailed.table.path).log.metadata()
    columns = kept((), Sealing((SENDER,), trailed.registry).schema(source.schema))
    change(trailed, where, values)
    [row] = trailed.payload().where(where).toArrow().combine_chunks().to_batches()
    [hash] = hashes(row, columns)
    assert hash is not None
    change(trailed, where, {"row_hash": f"x'{hash.hex()}'"})
    events = f"{trailed.sink.path}/events"
    trailed.spark.sql(f"alter table delta.`{events}` set tblproperties ('delta.appendOnly' = 'false')")
    event_rows(trailed.payload(), source.table_id).write.format("delta").mode("overwrite").save(events)
    with pytest.raises(TargetNotReady, match="no runner has left"):
        trailed.pipeline.run()

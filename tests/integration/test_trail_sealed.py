"""A trail whose personal columns are sealed under a key of each person: unreadable without it, and verified all the same."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from audit.encryption.decrypt import decrypt_rows, mask_rows
from audit.encryption.encrypt import ColumnEncryption
from audit.encryption.key_registry import KeyState
from audit.queries.questions import as_of, history
from audit.queries.view import view
from audit.trail.column_history import SEALED, extend_columns
from cdf.errors import RowRejected, TargetNotReady, VerificationError
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_sealed_states import SealedStates
from tests.integration.sealed_case import RECIPIENT, SENDER, Row, Trailed, cut_off, edited, forged_events, rehashed

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def trailed(sealed_states: SealedStates, tmp_path: Path, pg: Pg) -> Trailed:
    """Three versions of letters, in a sealed trail."""
    return sealed_states.sealed().copied(tmp_path, pg)


def test_what_cannot_be_sealed_for_its_person_is_not_written(trailed: Trailed) -> None:
    """Two people whose identifiers are not UTF-8 would share one key: the erasure of one would be that of both."""
    trailed.table.sql("insert into {t} (no, email) select 4, cast(X'61FF' as string)")
    for trailed.small_window_bytes in (0, 2**20):  # by the tasks, by the driver
        trailed.name_classes(replace(SENDER, column="email", classes=(("contact", ("Phones",)),)))
        with pytest.raises(RowRejected, match="column 'email' at version 4 holds bytes that are not UTF-8") as refused:
            trailed.pipeline.run()
        assert refused.value.__context__ is None

    # Where it is not known whose a row is
    trailed.name_classes(SENDER, RECIPIENT)
    trailed.table.sql("alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')")
    trailed.table.sql("alter table {t} drop column sender")
    trailed.table.sql("insert into {t} (no, email) values (9, 'canary9@x.org')")
    with pytest.raises(Exception, match="sender"):
        trailed.pipeline.run()
    assert b"canary9" not in trailed.bytes()


@pytest.mark.parametrize("small_window_bytes", [2**20, 0], ids=["driver", "tasks"])
def test_whoever_has_the_keys_reads_what_was_written(
    sealed_states: SealedStates, tmp_path: Path, pg: Pg, small_window_bytes: int
) -> None:
    trailed = sealed_states.sealed()
    if small_window_bytes != trailed.small_window_bytes:
        trailed = trailed.copied(tmp_path, pg, trail=False)
        trailed.small_window_bytes = small_window_bytes
        trailed.name_classes(SENDER, RECIPIENT)
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
    names = {
        row["no"]: row["unreadable"] for row in mask_rows(trailed.payload()).select("row.no", "unreadable").collect()
    }
    assert names[3] == dict.fromkeys(["recipient", "to_email"], "[sealed]")


def plans(frame: DataFrame) -> list[Mapping[str, str]]:
    return [{"plan": frame._jdf.queryExecution().toString()}]


def test_a_key_that_somebody_has_put_in_is_none(sealed_states: SealedStates) -> None:
    trailed = sealed_states.sealed()
    key_id = trailed.registry().find_keys([(trailed.token(7), "contact")])[trailed.token(7), "contact"].key_id

    def states(ids: Iterable[bytes]) -> Mapping[bytes, KeyState]:
        known = trailed.registry().read_states(ids)
        return {**known, key_id: replace(known[key_id], key=os.urandom(32))}

    rows = decrypt_rows(trailed.payload(), trailed.columns(), states).where("version = 1 and row.no = 1").collect()
    assert rows[0]["unreadable"]["email"] == "[wrong key]"


def test_whoever_is_shredded_is_gone_for_readers_and_the_trail_verifies_as_before(trailed: Trailed) -> None:
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
    rows = trailed.read()
    assert rows[-1]["email"] == "again@x.org"
    assert set(rows[0]["unreadable"]) == {"email", "phones", "paid"}
    assert trailed.intact()


def test_what_somebody_has_changed_is_tampering_and_no_erasure(trailed: Trailed) -> None:
    """Five rows, each changed in another way; what is sealed stays in its place."""
    token = trailed.token(8)
    trailed.shred(8)
    gone = trailed.registry().list_destroyed_keys([token])[0]

    def edit(row: Row) -> list[Row]:
        groups, texts = row["row"][SEALED], row["sealed"]
        match place(row):
            case (1, 1, "insert"):  # a byte more
                row["sealed"] = [texts[0] + b"\0", *texts[1:]]
            case (1, 2, "insert"):  # said to be nobody's
                row["row"][SEALED] = None
            case (1, 3, "insert"):  # taken away
                row["sealed"] = None
            case (2, 1, "update_preimage"):  # moved
                row["sealed"] = [texts[1], texts[0], texts[2]]
            case (2, 1, "update_postimage"):  # under another key, that is gone
                row["row"][SEALED] = [{**one, "key_id": gone} for one in groups]
        return [row]

    edited(trailed, "payload", edit)
    # Who can write the payload can take the hash again
    rehashed(trailed, trailed.sink.trail.columns(), lambda row: place(row) == (2, 1, "update_postimage"))

    shown = by_place(trailed.read())
    assert shown[1, 1]["email"] == shown[1, 2]["email"] == shown[2, 1, "pre"]["email"] == "[tampered]"
    assert shown[1, 3]["to_email"] == "[removed]"
    assert shown[2, 1, "post"]["email"].startswith("[erased ")  # by what stands beside it it is whole

    rows = {}
    for name, trail in (("closed", trailed.sink.trail), ("reader", trailed.reader())):
        rows[name] = {place(row): row["unreadable"] for row in view(trail).collect()}
        # Who takes the groups away leaves no empty columns, also for those who have no keys, and look at no hash
        nobodys = rows[name][1, 2, "insert"]
        assert {nobodys[column] for column in ("email", "paid", "to_email", "day")} == {"[tampered]"}
    asked = {place(row): row["unreadable"] for row in history(trailed.reader(), {"no": 1}).collect()}
    for of_view in (rows["reader"], asked):
        assert of_view[2, 1, "update_postimage"]["email"] == "[tampered]"
    assert rows["reader"][3, 2, "delete"]["email"].startswith("[erased ")

    found = [(one.kind, one.table, one.version) for one in trailed.sink.trail.verify()[0].findings]
    assert sorted(found) == [("altered", "payload", 1)] * 3 + [("altered", "payload", 2)] * 2
    trailed.shred(7)
    assert by_place(trailed.read())[1, 1]["email"] == "[tampered]"


def place(row: Any) -> tuple[int, int, str]:
    return row["version"], row["row"]["no"], row["change_type"]


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Why values are not shown, by version and number; of the update the row before comes last."""
    said = {(row["version"], row["no"]): row["unreadable"] or {} for row in rows if row["version"] != 2}
    post, pre = (row["unreadable"] or {} for row in rows if row["version"] == 2)
    return {**said, (2, 1, "pre"): pre, (2, 1, "post"): post}


def test_groups_of_another_form_are_not_taken_for_none(trailed: Trailed) -> None:
    payload = f"delta.`{trailed.sink.path}/payload`"
    trailed.spark.sql(f"alter table {payload} add columns (row.{SEALED}.element.more string)")
    for asked in (
        lambda: view(trailed.sink.trail),
        lambda: history(trailed.reader(), {"no": 1}),
        lambda: as_of(trailed.reader(), ["no"], 1),
    ):
        with pytest.raises(VerificationError, match="no longer have the type") as refused:
            asked()
        assert "audit verify" in str(refused.value.hint)
    assert not trailed.intact()


def test_rows_that_come_after_the_keys_were_asked_for_are_not_opened_and_not_empty(trailed: Trailed) -> None:
    rows, held = (
        decrypt_rows(trailed.payload(), trailed.columns(), trailed.registry().read_states),
        view(trailed.reader()),
    )
    trailed.table.sql("insert into {t} values (4, 21, 'canary21@x.org', null, null, 7, 'canary7@x.org', null)")
    trailed.pipeline.run()
    [late] = rows.where("version = 4").collect()
    assert late["unreadable"]["email"] == "[key missing]"
    assert late["row"]["to_email"] == "canary7@x.org"  # his key was asked for
    held_rows = held.collect()
    assert max(row["version"] for row in held_rows) == 3
    assert "canary8@x.org" in [row["row"]["email"] for row in held_rows]

    # Of what has no record yet nobody knows which columns its hash was taken of
    trailed.table.sql(
        "alter table {t} add columns (more string)",
        "insert into {t} values (5, 7, 'canary7@y.org', null, 1, null, null, null, 'x')",
    )
    cut_off(trailed)
    [row] = view(trailed.reader()).where("row.no = 5").collect()
    assert (row["row"]["sender"], row["unreadable"]["email"]) == (7, "[sealed]")
    trailed.pipeline.run()
    [row] = view(trailed.reader()).where("row.no = 5").collect()
    assert (row["row"]["email"], row["unreadable"]) == ("canary7@y.org", None)


# ── a window that was cut off ────────────────────────────────────────────────────────────────────────────────────────


def test_a_window_that_was_cut_off_is_taken_up(sealed_states: SealedStates, tmp_path: Path, pg: Pg) -> None:
    trailed = sealed_states.cut_off().copied(tmp_path, pg)
    assert trailed.payload().count() == 6
    trailed.shred(8)  # meanwhile
    trailed.pipeline.run()
    assert trailed.payload().count() == 6
    assert trailed.intact()
    first = trailed.read()[0]
    assert first["email"] == "canary7@x.org"
    assert set(first["unreadable"]) == {"recipient", "to_email"}


def goes_on(trailed: Trailed) -> None:
    trailed.pipeline.run()
    assert trailed.payload().count() == 6
    trailed.table.sql("insert into {t} values (4, 7, 'canary7@y.org', null, 1, null, null, null)")
    trailed.pipeline.run()
    assert trailed.read() == trailed.plain()
    assert trailed.intact()


def test_a_window_from_before_a_class_was_named_is_finished_as_it_was_written(
    sealed_states: SealedStates, tmp_path: Path, pg: Pg
) -> None:
    trailed = sealed_states.sealed().copied(tmp_path, pg, trail=False)
    trailed.name_classes()
    cut_off(trailed)
    trailed.name_classes(SENDER, RECIPIENT)
    goes_on(trailed)
    assert trailed.payload().where(f"row.{SEALED} is not null").select("version").distinct().collect() == [(4,)]


def test_a_sealed_window_is_finished_where_no_class_is_named_any_more(
    sealed_states: SealedStates, tmp_path: Path, pg: Pg
) -> None:
    trailed = sealed_states.cut_off().copied(tmp_path, pg)
    trailed.name_classes()
    with pytest.raises(TargetNotReady, match="were written encrypted"):  # without keys nobody can compare them
        trailed.pipeline.run()
    trailed.name_classes(registry=trailed.registry)
    goes_on(trailed)
    assert trailed.payload().where(f"version < 4 and row.{SEALED} is not null").count() == 6


FORGED = {
    # An address of nobody, in a row of nobody who is erased
    "another's": (3, lambda row: row["row"].update(email="made-up@x.org")),
    "beside what is erased": (2, lambda row: row["row"].update(email="made-up@x.org")),
    "another column": (2, lambda row: row["row"].update(day=dt.date(2001, 1, 1))),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_is_erased_hides_no_forgery_in_a_window_that_was_cut_off(
    sealed_states: SealedStates, tmp_path: Path, pg: Pg, forged: str
) -> None:
    """Consistent in itself: every hash is right."""
    trailed = sealed_states.cut_off().copied(tmp_path, pg)
    trailed.shred(8)
    no, change = FORGED[forged]

    def meant(row: Row) -> bool:
        return place(row) == (1, no, "insert")

    def edit(row: Row) -> list[Row]:
        if meant(row):
            change(row)
        return [row]

    edited(trailed, "payload", edit)
    columns = extend_columns(
        (), ColumnEncryption((SENDER,), trailed.registry).extend_schema(trailed.pipeline.feed.log.metadata().schema)
    )
    rehashed(trailed, columns, meant)
    forged_events(trailed)
    with pytest.raises(TargetNotReady, match="no runner of this trail wrote"):
        trailed.pipeline.run()


def test_a_window_that_somebody_else_has_put_there_is_not(sealed_states: SealedStates, tmp_path: Path, pg: Pg) -> None:
    trailed = sealed_states.cut_off().copied(tmp_path, pg)

    def edit(row: Row) -> list[Row]:
        return [{**row, "sealed": [b"\0"] * len(row["sealed"])} if place(row) == (1, 1, "insert") else row]

    edited(trailed, "payload", edit)
    with pytest.raises(TargetNotReady, match="no runner of this trail wrote"):
        trailed.pipeline.run()

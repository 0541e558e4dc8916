"""Rows from before a class of columns was named: told, sealed under a record, and verified as before."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit.anchors.base import NamedAnchor
from audit.anchors.file import FileAnchor
from audit.audit_trail import Trail
from audit.encryption.column_groups import PersonColumns
from audit.encryption.decrypt import decrypt_rows
from audit.queries.column_eras import list_column_eras
from audit.queries.view import view
from audit.reconciliation.comparison import reconcile
from audit.reencryption.plaintext_rows import PlaintextRows
from audit.signing.signer import Signer
from audit.trail.column_history import SEALED
from audit.trail.row_hashes import hash_rows
from audit.trail.tables import LEDGER, PAYLOAD
from audit.writing.removal import find_encrypted_groups
from cdf.errors import ConfigError, RowRejected, VerificationError
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_sealed_states import SealedStates
from tests.integration.sealed_case import RECIPIENT, SENDER, Row, Trailed, edited, forged_events, rehashed

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def trailed(sealed_states: SealedStates, tmp_path: Path, pg: Pg) -> Trailed:
    """Three versions of letters, in plain text; then the classes are named."""
    return sealed_states.plain().copied(tmp_path / "first", pg)


def read(trailed: Trailed) -> list[dict[str, Any]]:
    rows = decrypt_rows(trailed.payload(), list_column_eras(trailed.sink.trail), trailed.registry().read_states)
    return [
        {"version": row["version"], "unreadable": row["unreadable"], **row["row"].asDict()}
        for row in rows.orderBy("version", "row.no", "change_type").collect()
    ]


def records(trailed: Trailed) -> list[dict[str, Any]]:
    rows = trailed.sink.trail.tables.read("ledger").where("kind = 'sealing'").orderBy("sequence").collect()
    return [json.loads(row["record"]) for row in rows]


def files(trailed: Trailed) -> bytes:
    """What the payload is made of now."""
    named = trailed.spark.read.format("delta").load(f"{trailed.sink.path}/payload").inputFiles()
    return b"".join(Path(one.removeprefix("file://").removeprefix("file:")).read_bytes() for one in named)


def dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_they_are_told_sealed_under_a_record_and_gone_with_their_keys(
    trailed: Trailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    trailed.name_classes()
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows()
    with pytest.raises(ConfigError, match="no class of columns is configured"):
        trailed.seal_earlier()
    trailed.name_classes(SENDER, RECIPIENT)
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows(6, 1, 3, {"contact": 6, "billing": 3})
    before, since = trailed.sink.trail.verify()
    salts = {row["salt"] for row in trailed.payload().collect()}
    assert b"canary" in files(trailed)  # the control

    trailed.seal_earlier()
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows()
    assert read(trailed) == trailed.plain()
    found = trailed.sink.trail.verify()[0]
    assert (found.intact, found.events, found.values, found.resealed) == (True, before.events, before.values, 6)
    assert b"canary" not in files(trailed)
    assert not salts & {row["salt"] for row in trailed.payload().collect()}
    [record] = records(trailed)
    places = {"1": [[0, 2]], "2": [[0, 1]], "3": [[0, 0]]}
    assert (record["sealed"], record["values"], record["ticket"]) == (places, 6, "SEC-1")
    assert not Path(trailed.sink.path, "_sealing").exists()
    # A quick verification looks at them again, once
    found, since = trailed.sink.trail.verify(since=since)
    assert (found.intact, found.level, found.resealed) == (True, "quick", 6)
    found, _ = trailed.sink.trail.verify(since=since)
    assert (found.intact, found.events) == (True, 0)

    trailed.seal_earlier()  # nothing is left to seal
    assert len(records(trailed)) == 1
    trailed.table.sql("insert into {t} values (4, 7, 'canary7@x.org', null, 1, null, null, null)")
    trailed.pipeline.run()
    assert read(trailed) == trailed.plain()
    assert trailed.intact()

    token = trailed.token(7)
    trailed.shred(7)
    shown = read(trailed)
    assert set(shown[0]["unreadable"]) == {"email", "phones", "paid"}
    assert shown[0]["to_email"] == "canary8@x.org"
    keys = trailed.registry().list_destroyed_keys([token])
    # A shredding that is killed is finished by the next
    with monkeypatch.context() as patch:
        patch.setattr("audit.writing.removal._finish_shredding", dies)
        with trailed.sink.open_for(trailed.table.path, ("no",), "er-1"), pytest.raises(KeyboardInterrupt):
            trailed.sink.remove_encrypted(keys, {"run": "er-1"})
    tables = trailed.sink.trail.tables
    assert find_encrypted_groups(tables, keys).count() > 0  # the record is there, and they are
    assert trailed.intact()
    trailed.pipeline.run()
    assert find_encrypted_groups(tables, keys).count() == 0
    assert trailed.intact()


def test_a_class_that_is_named_later_joins_those_of_before(sealed_states: SealedStates, tmp_path: Path, pg: Pg) -> None:
    """The column that tells whose a row is may be sealed by then: the row's token tells it."""
    trailed = sealed_states.plain().copied(tmp_path, pg, trail=False)
    sender = replace(SENDER, classes=(("contact", ("email",)),))
    recipient = replace(RECIPIENT, classes=(("contact", ("recipient",)),))
    trailed.name_classes(sender, recipient)
    trailed.pipeline.run()
    trailed.name_classes(SENDER, RECIPIENT)
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows(4, 1, 2, {"contact": 4, "billing": 3})
    trailed.seal_earlier()
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows()
    assert read(trailed) == trailed.plain()
    row = trailed.payload().where("version = 1 and row.no = 1").collect()[0]["row"]
    assert [(one["class"], one["columns"]) for one in row[SEALED]] == [
        ("contact", ["email"]),
        ("contact", ["recipient"]),
        ("contact", ["phones"]),
        ("billing", ["paid"]),
        ("contact", ["to_email"]),
    ]
    assert trailed.intact()


def test_columns_of_former_schemas_are_sealed_too(trailed: Trailed) -> None:
    """One that was renamed, one that is gone, and one of which no row was written yet, which is in no one's way."""
    trailed.name_classes()
    trailed.table.sql(
        "alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')",
        "alter table {t} rename column email to mail",
        "alter table {t} drop column paid",
        "insert into {t} values (5, 8, 'canary8@y.org', null, 7, 'canary7@y.org', null)",
    )
    trailed.pipeline.run()
    trailed.table.sql("alter table {t} add columns (fax string)")
    classes = (("contact", ("mail", "phones", "fax")), ("billing", ("paid",)))
    trailed.name_classes(PersonColumns("customer", "id", "sender", "exact", classes), RECIPIENT)
    trailed.pipeline.run()
    assert reconcile(trailed.sink.trail, trailed.pipeline).equal is True
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows(7, 1, 7, {"contact": 7, "billing": 3})
    trailed.seal_earlier()
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows()
    assert b"canary" not in files(trailed)
    rows = read(trailed)
    assert (rows[0]["email"], str(rows[0]["paid"]), rows[-1]["mail"]) == ("canary7@x.org", "12.50", "canary8@y.org")
    assert trailed.intact()

    # Of a runner that was killed while it removed the folder
    [record] = records(trailed)
    Path(trailed.sink.path, "_sealing", record["made_in"]).mkdir(parents=True)
    trailed.pipeline.run()
    assert not Path(trailed.sink.path, "_sealing").exists()


def test_a_run_that_is_killed_is_finished_or_leaves_nothing(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> list[tuple[Any, ...]]:
        """Rows are held against what the record says, or while they are being sealed against what was before."""
        rows = view(trailed.reader()).where("row.no = 1").orderBy("version", "index").collect()
        return [(row["row"]["email"], row["unreadable"]) for row in rows]

    # Before the record; before the payload; by the one who finishes that, before the folder is gone
    for step, unfinished in (
        ("reencryption.reencrypt.append_removal", 0),
        ("reencryption.reencrypt.merge_folder", 6),
        ("writing.encrypted_folder.remove_folders", 0),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"audit.{step}", dies)
            with pytest.raises(KeyboardInterrupt):
                trailed.seal_earlier()
        assert Path(trailed.sink.path, "_sealing").exists()
        found = trailed.sink.trail.verify()[0]
        assert (found.intact, found.unfinished) == (True, unfinished), step
        if step.endswith("merge_folder"):
            assert shown() == [("canary7@x.org", None)] * 3  # the record is there, and the rows are as they were
    trailed.pipeline.run()  # whoever takes the trail over next
    assert not Path(trailed.sink.path, "_sealing").exists()
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows()
    assert read(trailed) == trailed.plain()
    assert shown() == [("canary7@x.org", None)] * 3
    found = trailed.sink.trail.verify()[0]
    assert (found.intact, found.unfinished, len(records(trailed))) == (True, 0, 1)
    trailed.shred(7)
    assert {row["email"][:8] for _, row in shown()} == {"[erased "}


def test_nothing_is_sealed_in_a_trail_that_is_not_what_was_written(
    sealed_states: SealedStates, tmp_path: Path, pg: Pg
) -> None:
    """The record would make it true for good, and the event could be put back."""

    def value(trailed: Trailed) -> None:
        edited(trailed, PAYLOAD, lambda row: [changed(row, email="made-up@x.org")] if at(row) == (1, 1) else [row])

    def row_and_event(trailed: Trailed) -> None:
        forge(trailed, 3)

    def twice(trailed: Trailed) -> None:
        edited(trailed, PAYLOAD, lambda row: [row] * (2 if row["version"] == 3 else 1))

    for forged in (value, row_and_event, twice):
        trailed = sealed_states.plain().copied(tmp_path / forged.__name__, pg)
        forged(trailed)
        with pytest.raises(VerificationError, match="differs from what was written: nothing is encrypted"):
            trailed.seal_earlier()
        assert records(trailed) == [], forged
        assert not Path(trailed.sink.path, "_sealing").exists()
        assert trailed.sink.erasure.unencrypted_rows().rows == (7 if forged is twice else 6)
        with trailed.sink.open_for(trailed.table.path, ("no",), "the next"):
            pass  # nothing is left that nobody could finish


def at(row: Row) -> tuple[int, int]:
    return row["version"], row["row"]["no"]


def changed(row: Row, **values: Any) -> Row:
    return {**row, "row": {**row["row"], **values}}


def test_what_was_sealed_later_cannot_be_changed(trailed: Trailed) -> None:
    payload = f"{trailed.sink.path}/{PAYLOAD}"
    plain = trailed.payload().where("version = 3").collect()
    schema = trailed.payload().schema
    trailed.seal_earlier()
    trailed.table.sql("insert into {t} (no) values (9)")
    trailed.pipeline.run()  # now the sealing is not the last record, which may be at work
    # The row from before, and another row
    trailed.spark.sql(f"delete from delta.`{payload}` where version = 3")
    old = trailed.spark.createDataFrame(plain, schema)
    old.write.format("delta").mode("append").option("mergeSchema", "true").save(payload)
    edited(trailed, PAYLOAD, lambda row: [changed(row, day=DAY) if at(row) == (1, 2) else row])
    assert findings(trailed) == [("altered", PAYLOAD, 1), ("altered", PAYLOAD, 3)]

    # Another record's hash
    edited(
        trailed,
        LEDGER,
        lambda row: (
            [{**row, "chunk_roots": b"\0" * len(row["chunk_roots"] or b"")}] if row["kind"] == "sealing" else [row]
        ),
    )
    assert ("altered", LEDGER, None) in findings(trailed)


DAY = dt.date(2001, 1, 1)


def findings(trailed: Trailed) -> list[tuple[str, str, int | None]]:
    return sorted((one.kind, one.table, one.version) for one in trailed.sink.trail.verify()[0].findings)


def test_many_rows_are_sealed_in_rounds(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    trailed.name_classes()
    trailed.table.sql("insert into {t} values (5, 8, 'canary8@x.org', null, 2.00, null, null, null)")
    trailed.pipeline.run()  # a window of its own has files of its own
    trailed.name_classes(SENDER, RECIPIENT)
    monkeypatch.setattr("audit.reencryption.reencrypt.ROUND", 2)
    trailed.seal_earlier()
    assert trailed.sink.erasure.unencrypted_rows() == PlaintextRows()
    assert read(trailed) == trailed.plain()
    places = [one["sealed"] for one in records(trailed)]
    assert len(places) > 1
    told = [(version, at) for one in places for version, runs in one.items() for a, b in runs for at in range(a, b + 1)]
    assert sorted(told) == [("1", 0), ("1", 1), ("1", 2), ("2", 0), ("2", 1), ("3", 0), ("4", 0)]
    found = trailed.sink.trail.verify()[0]
    assert (found.intact, found.resealed) == (True, 7)


def test_identifiers_that_are_not_utf8_are_refused(trailed: Trailed) -> None:
    trailed.name_classes()
    trailed.table.sql("insert into {t} (no, email, paid) values (5, cast(X'61FF' as string), 1)")
    trailed.pipeline.run()
    trailed.name_classes(replace(SENDER, column="email", classes=(("billing", ("paid",)),)))
    with pytest.raises(RowRejected, match=r"column 'email' at version 4 holds bytes that are not UTF-8") as refused:
        trailed.seal_earlier()
    assert refused.value.__context__ is None
    assert records(trailed) == []
    assert trailed.intact()
    assert not Path(trailed.sink.path, "_sealing").exists()


def test_a_signed_trail_is_continued_after_it(trailed: Trailed, tmp_path: Path) -> None:
    """Its last record, with what is to be done by it, is what whoever signed has left; also a shredding."""
    (tmp_path / "anchor").mkdir()
    anchor, signer = NamedAnchor("a safe", FileAnchor(tmp_path / "anchor")), Signer.generate("example.org/trail")
    trailed.name_classes(SENDER, RECIPIENT, signer=signer, anchors=(anchor,))
    trailed.sink.trail.checkpoint(accept=True)
    trailed.seal_earlier()
    trailed.pipeline.run()
    token = trailed.token(7)
    trailed.shred(7)
    with trailed.sink.open_for(trailed.table.path, ("no",), "er-1"):
        trailed.sink.remove_encrypted(trailed.registry().list_destroyed_keys([token]), {"run": "er-1"})
    trailed.table.sql("insert into {t} (no) values (9)")
    trailed.pipeline.run()
    found = trailed.sink.trail.verify()[0]
    assert (found.intact, found.sealed_version, found.resealed) == (True, 4, 6)

    # A proof tells the event, and no values: its hash is of the row as it was
    assert trailed.sink.trail.prove(1, 0)
    with pytest.raises(ConfigError, match="encrypted after they were written"):
        trailed.sink.trail.prove(1, 0, show_row=True)


# ── what somebody else has changed ───────────────────────────────────────────────────────────────────────────────────


def forge(trailed: Trailed, version: int) -> None:
    """The rows of a version have another day and their events too, each with the hash of what the row is now."""
    edited(trailed, PAYLOAD, lambda row: [changed(row, day=DAY) if row["version"] == version else row])
    rehashed(trailed, trailed.sink.trail.columns(), lambda row: row["version"] == version)
    forged_events(trailed, version)


def hash_of(trailed: Trailed, version: int) -> bytes:
    rows = trailed.payload().where(f"version = {version}").toArrow().combine_chunks().to_batches()[0]
    [hash] = hash_rows(rows, trailed.sink.trail.columns())
    assert hash is not None
    return hash


def test_what_is_changed_while_it_is_sealed_is_not_believed(trailed: Trailed, monkeypatch: pytest.MonkeyPatch) -> None:
    done, verify = list[bool](), Trail.verify

    def verified(trail: Trail, **asked: Any) -> Any:
        found = verify(trail, **asked)
        done.append(found[0].intact)
        forge(trailed, 3)
        return found

    monkeypatch.setattr(Trail, "verify", verified)
    trailed.seal_earlier()
    assert done == [True]
    assert read(trailed) == trailed.plain()


def test_a_quick_verification_believes_no_record_that_it_did_not_look_at(trailed: Trailed) -> None:
    trailed.table.sql("insert into {t} values (4, 7, 'canary7@x.org', null, 1, null, null, null)")
    trailed.pipeline.run()
    _, since = trailed.sink.trail.verify()
    trailed.table.sql("insert into {t} values (5, 7, 'canary7@x.org', null, 1, null, null, null)")
    trailed.pipeline.run()
    assert trailed.sink.trail.verify(since=since)[0].intact  # the control
    payload, ledger = (f"delta.`{trailed.sink.path}/{name}`" for name in (PAYLOAD, LEDGER))

    def told(kind: str, record: dict[str, Any], hashes: bytes = b"") -> None:
        """A record among those that are not walked any more."""
        trailed.spark.sql(
            f"insert into {ledger} (sequence, kind, events, record, leaf, chunk_roots) "
            f"values (0, '{kind}', 0, '{json.dumps(record)}', x'00', x'{hashes.hex()}')"
        )

    def found() -> list[tuple[str, str, int | None]]:
        quick, kept = trailed.sink.trail.verify(since=since)
        assert kept is None
        return [(one.kind, one.table, one.version) for one in quick.findings]

    taken = "transform(sealed, (one, at) -> if(at = 0, null, one))"
    keys = [bytes(one["key_id"]).hex() for one in trailed.payload().where("version = 5").collect()[0]["row"][SEALED]]
    trailed.spark.sql(f"update {payload} set sealed = {taken} where version = 5")
    told("shredding", {"keys": keys})
    assert found() == [("altered", PAYLOAD, 5)]

    nothing = "cast(null as array<binary>)"
    names = trailed.payload().schema["row"].dataType.names  # type: ignore[attr-defined]
    row = ", ".join(f"'{name}', " + ("null" if name == SEALED else f"row.{name}") for name in names)
    trailed.spark.sql(f"update {payload} set row = named_struct({row}), sealed = {nothing} where version = 5")
    hash = hash_of(trailed, 5)
    trailed.spark.sql(f"update {payload} set row_hash = x'{hash.hex()}' where version = 5")
    told("sealing", {"sealed": {"5": [[0, 0]]}}, hash)
    assert found() == [("altered", PAYLOAD, 5)]

"""An erasure where trails are sealed: the keys go first, and what is said of others stays, in every copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.audit_trail import Trail
from audit.encryption.key_registry import Registry
from audit.erasure.errors import SinkBehind
from audit.erasure.find.plan import make_plan
from audit.erasure.register.records import StepName
from audit.erasure.register.secrets import Keys
from audit.erasure.register.store import Register
from audit.erasure.run.context import RunContext
from audit.erasure.run.delete_rows import DeleteRows
from audit.erasure.run.runner import ErasureReport, ErasureRun
from audit.erasure.run.tasks import make_task
from audit.reconciliation.comparison import reconcile
from cdf.errors import ConfigError, VerificationError
from tests.fixtures.fix_postgres import Pg
from tests.integration.sealed_bank import ASKED, CANARY, NOW, SIGNER, Bank

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path, pg: Pg) -> Bank:
    return Bank(spark, tmp_path, pg)


def register_of(bank: Bank) -> Register:
    register = Register(bank.pg.dsn, schema=bank.pg.schema)
    register.prepare()
    register.add([ASKED], Keys(SIGNER))
    return register


def run_of(bank: Bank, register: Register, held: Any, run: str = "er-1") -> ErasureRun:
    return ErasureRun(
        RunContext(
            spark=bank.spark,
            graph=bank.graph(),
            copies=bank.copies(),
            register=register,
            held=held,
            keys=Keys(SIGNER),
            signer=SIGNER,
            run=run,
            requests=[ASKED],
            approve_above=10,
            out_of_reach=(),
            now=NOW,
            immediate=True,
            registry=bank.registry(),
        )
    )


def test_the_keys_go_first_and_everything_else_follows(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who they are is only in the trail, under their own key: it is opened to find them, while the key is there
    bank.customers.sql("delete from {t} where no in (1, 3)")
    bank.run()
    register = register_of(bank)
    plan = make_plan(bank.spark, bank.graph(), bank.copies(), [ASKED], (), run="er-1", approve_above=10, now=NOW)
    assert {Path(one.table).name: dict(one.rows) for one in plan.tables} == {"customers": {}, "transfers": {"r1": 2}}
    register.begin("er-1", ["r1"], plan.digest)
    # What its pipeline has not read yet when the keys go
    bank.transfers.sql("insert into {t} values (12, 7, 'Seven of nine', 2, 'Two', 53)")
    events = bank.events()
    copy = f"{tmp_path}/yesterday"
    shutil.copytree(bank.sinks["transfers"].path, copy)
    assert bank.read(copy, "sender_name", "recipient_name", "cents") == [
        ("One", "Two", "50"),
        ("Seven of", "One", "51"),
        ("One", "Seven of", "52"),
    ]

    def go() -> ErasureReport:
        with register.lease("er-1") as held:
            return run_of(bank, register, held).execute()

    with monkeypatch.context() as patch:
        # Where the tokens are known, and where the keys are gone
        for name in ("destroy_keys", "list_destroyed_keys"):
            patch.setattr(Registry, name, dies)
            with pytest.raises(KeyboardInterrupt):
                go()
            patch.undo()
    assert {one.state for one in register.requests(["r1"])} == {"approved"}
    with monkeypatch.context() as patch:
        patch.setattr(DeleteRows, "run", dies)
        with pytest.raises(KeyboardInterrupt):
            go()
    assert {one.state for one in register.requests(["r1"])} == {"shredded"}
    # Nobody could find what is sealed of them any more: the run has to be gone on with
    with pytest.raises(ConfigError, match="cannot have requests of another run"):
        register.begin("er-2", ["r1"], "another plan")
    gone = [("One", "Two", "50"), ("[erased ", "One", "51"), ("One", "[erased ", "52")]
    for path in (copy, bank.sinks["transfers"].path):
        assert bank.read(path, "sender_name", "recipient_name", "cents") == gone
    assert bank.intact()
    assert bank.events() == events

    report, waited = None, 0
    while report is None:
        try:
            report = go()
        except SinkBehind:
            waited += 1
            assert waited < 5
            bank.run()
    assert report.state == "certified", report
    # The erasing commits' own images go as a whole: they had the key alone
    assert report.forgotten["transfers"] == {"values removed": 3, "sealed values removed": 3}
    assert bank.intact()
    shown = bank.read(bank.sinks["transfers"].path, "sender", "sender_name", "recipient", "recipient_name", "cents")
    assert shown == [
        ("1", "One", "2", "Two", "50"),
        ("[erased ", "[erased ", "1", "One", "51"),
        ("1", "One", "[erased ", "[erased ", "52"),
        ("[erased ", "[erased ", "2", "Two", "53"),
    ]
    assert bank.read(bank.sinks["customers"].path, "id", "segment") == [("1", "a"), ("2", "b"), ("[erased ", "c")]
    stored = bank.spark.read.format("delta").load(bank.transfers.path).orderBy("no")
    assert [tuple(row) for row in stored.select("sender_name", "recipient_name").collect()] == [
        ("One", "Two"),
        (None, "One"),
        ("One", None),
        (None, "Two"),
    ]
    for sink, pipeline in zip(bank.sinks.values(), bank.pipelines, strict=True):
        trail = Trail(bank.spark, sink.path, states=bank.registry().read_states)
        assert reconcile(trail, pipeline).equal is not False
        kept = [one for one in Path(sink.path).rglob("*") if one.is_file()]
        assert not [one for one in kept if b"Seven of nine" in one.read_bytes() or CANARY.encode() in one.read_bytes()]
    certificate = register.certificate("r1")
    assert certificate is not None
    assert "shred" in {one["step"] for one in certificate["evidence"]}
    assert [one for one in certificate["out_of_reach"] if bank.root.name in one]
    # By what the trail still tells rows apart nobody is led back to the request
    tokens = {bytes(row[0]).hex() for row in bank.tokens("transfers").collect()}
    steps = str([one.facts for one in register.steps("er-1")])
    assert len(tokens) == 4  # 7 had another one in what was read after the first keys went
    assert not [one for one in tokens if one in steps]
    assert register.learned(["r1"], Keys(SIGNER)) == []


def test_what_a_row_says_of_somebody_else_stays_also_where_it_is_readable(
    spark: SparkSession, tmp_path: Path, pg: Pg
) -> None:
    bank = Bank(spark, tmp_path, pg, plain_sender=True)
    bank.run()
    register = register_of(bank)
    register.begin("er-1", ["r1"], "digest")
    # No key is destroyed where nothing could be deleted
    bank.transfers.sql("alter table {t} set tblproperties ('delta.appendOnly' = 'true')")
    with register.lease("er-1") as held, pytest.raises(ConfigError, match="is append-only"):
        run_of(bank, register, held).execute()
    assert bank.registry().read_status().shredded == 0
    bank.transfers.sql("alter table {t} unset tblproperties ('delta.appendOnly')")
    register.begin("er-2", ["r1"], "another plan")  # nothing has been done
    report = walked(bank, register, "er-2")
    assert report.state == "certified", report
    # Of the delete the trail has the key alone, which stays beside the encrypted rows: the record is not there any more
    assert report.forgotten["customers"] == {"values removed": 0, "sealed values removed": 3}
    assert bank.read(bank.sinks["customers"].path, "id", "segment")[2] == ("[erased ", "c")
    # As the sender 7 stood in 10 in plain text, so that this row goes whole; as who gets, in 11, sealed
    shown = bank.read(bank.sinks["transfers"].path, "sender", "sender_name", "recipient_name", "cents")
    assert shown == [("1", "One", "Two", "50"), ("1", "One", "[erased ", "52")]
    assert bank.intact()


def test_keys_that_a_hand_in_the_registry_keeps(bank: Bank) -> None:
    """Moved to somebody else before they are destroyed, or put back after it: no certificate tells of an erasure."""
    bank.run()
    register, registry = register_of(bank), bank.registry()
    register.begin("er-1", ["r1"], "digest")
    keys = f"{bank.pg.schema}_keys"
    token, other = registry.find_tokens("customer", [[("id", "7")], [("id", "1")]])
    assert token is not None
    bank.pg.query(f"create table {keys}.mine as select * from {keys}.key where token = %s", token)
    back = (
        f"update {keys}.key k set wrapped = m.wrapped, shredded_at = null from {keys}.mine m where k.key_id = m.key_id"
    )
    with register.lease("er-1") as held:
        run = run_of(bank, register, held)
        run.resolve.run()
        run.start.run()
        bank.pg.query(f"update {keys}.key set token = %s, class = 'x' where token = %s", other, token)
        run.keys.run()
        [(one, copy)] = [pair for pair in run.context.copies_to_erase() if pair[1].pipeline == "customers"]
        with pytest.raises(VerificationError, match="does not assign this key to them"):
            bank.sinks["customers"].erasure.erase(make_task(run.context, run.keys, one, copy.key))
        bank.pg.query(f"update {keys}.key set token = %s, class = 'contact' where class = 'x'", token)
        assert registry.list_active_classes([token]) == {"contact"}
        run.keys.destroy_restored_keys(registry)
        assert registry.list_active_classes([token]) == frozenset()
        bank.sinks["customers"].erasure.erase(make_task(run.context, run.keys, one, copy.key))
        run.context.steps.record("request r1", StepName.SCAN, {"finds": 0, "checked": [], "unseen": []})
        known = f"{bank.pg.schema}.known"
        bank.pg.query(f"create table {keys}.known as select * from {known} where name = '-> token'")
        bank.pg.query(f"delete from {known} where name = '-> token'")
        with pytest.raises(
            VerificationError,
            match="the register no longer has the token that identifies, in the key registry, the person of r1",
        ):
            run.certificates.make_certificate(ASKED)
        bank.pg.query(f"insert into {known} select * from {keys}.known")
        bank.pg.query(back)
        with pytest.raises(VerificationError, match="in the registry again after they were destroyed: contact"):
            run.certificates.make_certificate(ASKED)


def walked(bank: Bank, register: Register, run: str = "er-1") -> ErasureReport:
    """To its end, with the pipelines in between."""
    for _ in range(6):
        try:
            with register.lease(run) as held:
                return run_of(bank, register, held, run).execute()
        except SinkBehind:
            bank.run()
    raise AssertionError("it waits for ever")


def dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt

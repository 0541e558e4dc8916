"""A run that dies after every single thing that it writes down, and is taken up: nothing is skipped, nothing done twice."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from pyspark.sql import SparkSession

from audit.erasure.erase.delete import erased_versions
from audit.erasure.evidence.certificate import check
from audit.erasure.find.copies import Copy
from audit.erasure.find.plan import make_plan
from audit.erasure.find.resolve import LEARNED_LIMIT
from audit.erasure.model import Hold, Link, PersonalTable, Request, Subject
from audit.erasure.register import run_lease as register_held
from audit.erasure.register.leased_register import LeasedRegister
from audit.erasure.register.records import Carrier
from audit.erasure.register.secrets import Keys
from audit.erasure.register.steps import with_mac
from audit.erasure.register.store import Register
from audit.erasure.run.context import RunContext
from audit.erasure.run.runner import ErasureReport, ErasureRun
from audit.erasure.scan.results import ScanResult
from audit.erasure.scan.search_terms import SearchTerms
from audit.erasure.sink_contract import ErasureTask, PurgeResult, SinkErasure
from audit.erasure.table_graph import Graph
from audit.signing.signer import Signer
from cdf.errors import ConfigError, LeaseHeld, VerificationError
from cdf.sink import Position
from cdf.source.table import ChangeFeed
from cdf.testing.memory import MemorySink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")

SUBJECTS = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
CANARY = "canary.person@example.org"
SIGNER = Signer.generate("example.org/erasure")
NOW = dt.datetime.now(dt.UTC)


class Died(Exception):
    pass


class Mortal:
    """The holder of the register. It dies right after the first thing that it has written, where that was new."""

    def __init__(self, held: LeasedRegister, register: Register) -> None:
        self._held, self._register = held, register

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._held, name)
        if name not in ("record_step", "begin_deleting", "move", "suppress", "wait", "certify", "forget", "finish"):
            return found

        def write(*words: Any, **more: Any) -> None:
            before = self._state()
            found(*words, **more)
            if self._state() != before:
                raise Died(name)

        return write

    def _state(self) -> Any:
        with self._register._database.transaction() as work:
            tables = ("request", "step", "mark", "certificate", "known", "run")
            return [sorted(map(str, work.rows("select * from {" + name + "}"))) for name in tables]


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """The tables of every office. Tests change copies."""
    folder = tmp_path_factory.mktemp("office")
    customers = Table(spark, f"{folder}/customers", "customer_id long, email string")
    orders = Table(spark, f"{folder}/orders", "order_id long, customer_id long")
    customers.sql(
        "insert into {t} select id, concat('p', id, '@example.org') from range(5)",
        f"insert into {{t}} values (700, '{CANARY}')",
    )
    orders.sql("insert into {t} select id, id % 5 from range(10)", "insert into {t} values (90, 700), (91, 700)")
    return {"customers": customers, "orders": orders}


class Office:
    def __init__(self, spark: SparkSession, folder: Path, pg: Pg, built: dict[str, Table]) -> None:
        self.spark = spark
        self.customers, self.orders = (built[name].copy(folder / name) for name in ("customers", "orders"))
        self.register, self.keys = Register(pg.dsn, schema=pg.schema), Keys(SIGNER)
        self.register.prepare()
        self.holds: list[Hold] = []

    def receive(self, *ids: str, approver: str | None = None, add: bool = True, **identifiers: str) -> None:
        day = NOW.date()
        requests = [
            Request(id, "customer", identifiers, day, day + dt.timedelta(30), "GDPR Art. 17", "desk", approver)
            for id in ids
        ]
        self.requests = requests
        if add:
            self.register.add(requests, self.keys)
            self.register.begin("er-1", ids, "digest")

    def graph(self, tables: int = 2) -> Graph:
        """Of the first tables of two."""
        path = self.customers.path
        every = [
            PersonalTable(path, "customer", "customer_id"),
            PersonalTable(self.orders.path, "customer", Link("customer_id", path, "customer_id")),
        ]
        return Graph.of(SUBJECTS, every[:tables], self.holds)

    def go(self, *, mortal: bool = False, immediate: bool = True, tables: int = 2, **more: Any) -> ErasureReport:
        with self._held(mortal) as held:
            run = ErasureRun(
                RunContext(
                    spark=self.spark,
                    register=self.register,
                    held=held,
                    keys=self.keys,
                    signer=SIGNER,
                    run="er-1",
                    requests=self.requests,
                    **{
                        "approve_above": 100,
                        "out_of_reach": ("nightly dumps",),
                        "now": NOW,
                        "immediate": immediate,
                        "copies": (),
                        "graph": self.graph(tables),
                        **more,
                    },
                )
            )
            return run.execute()

    @contextmanager
    def _held(self, mortal: bool) -> Iterator[Any]:
        with self.register.lease("er-1") as held:
            yield Mortal(held, self.register) if mortal else held

    def states(self) -> dict[str, str]:
        return {one.id: one.state for one in self.register.requests()}

    def rows(self, table: Table) -> set[Any]:
        return {row[0] for row in self.spark.read.format("delta").load(table.path).collect()}


@pytest.fixture
def office(spark: SparkSession, tmp_path: Path, pg: Pg, built: dict[str, Table]) -> Office:
    return Office(spark, tmp_path, pg, built)


def test_what_is_found_of_one_person_holds_up_nobody_else(office: Office) -> None:
    """Somebody has quoted the address of R-1. A decision ends it, for what was found when it was made."""
    quoted = f"he wrote from {CANARY.replace('@', '&#64;')}"
    office.customers.sql(f"insert into {{t}} values (1, '{quoted}')")
    office.receive("R-1", email=CANARY)
    first = office.requests
    day = NOW.date()
    other = {"email": "p2@example.org"}
    second = Request("R-2", "customer", other, day, day + dt.timedelta(30), "GDPR Art. 17", "desk")
    office.register.add([second], office.keys)
    office.register.begin("er-1", ["R-1", "R-2"], "digest")
    office.requests = [*first, second]
    with pytest.raises(ConfigError, match="no scan has left request R-1 with a find"):
        office.register.accept("R-1", "the privacy desk", "quoted by somebody else")
    for _ in range(2):
        report = office.go()
        assert {(one.request, one.reason, one.spelling) for one in report.finds} == {("R-1", "current file", "html")}
        assert (report.state, report.certificates) == ("purged", ("R-2",))
        assert office.states() == {"R-1": "purged", "R-2": "certified"}
    assert office.register.certificate("R-2")["scan"]["finds"] == 0  # type: ignore[index]
    assert office.register.accept("R-1", "the privacy desk", "quoted by somebody else") >= 1
    # What comes to it later is not accepted
    office.customers.sql(f"insert into {{t}} values (3, '{quoted}')")
    assert {one.request for one in office.go().finds} == {"R-1"}
    office.customers.sql("delete from {t} where customer_id = 3")
    report = office.go()
    assert (report.finds, report.state) == ((), "partial")
    assert office.states() == {"R-1": "partial", "R-2": "certified"}
    document = office.register.certificate("R-1")
    assert document is not None
    check(document, SIGNER.verifier)
    assert document["outcome"] == "partial"
    assert document["scan"]["finds"] >= 1
    assert "accepted by the privacy desk: quoted by somebody else" in document["pending"][0]["reason"]
    assert not any("R-2" in one["step"] for one in document["evidence"])
    assert office.register.run("er-1").finished_at is not None


def test_dying_after_everything_that_is_written_down(office: Office) -> None:
    office.receive("R-1", "R-2", email=CANARY)
    died: list[str] = []
    report = None
    while report is None:
        assert len(died) < 60, died
        try:
            report = office.go(mortal=True)
        except Died as death:
            died.append(str(death))
    assert {"record_step", "begin_deleting", "move", "suppress", "certify", "finish"} <= set(died)
    assert office.states() == {"R-1": "certified", "R-2": "certified"}
    assert office.rows(office.customers) == set(range(5))
    assert office.rows(office.orders) == set(range(10))
    for table in (office.customers, office.orders):
        # Its erasing commits are cleaned out of the log by then, and none came later
        assert (
            erased_versions(office.spark, table.path, "er-1", since=_earliest(office, table), marker=office.keys) == ()
        )
    for id in ("R-1", "R-2"):
        document = office.register.certificate(id)
        assert document is not None
        check(document, SIGNER.verifier)
        assert document["outcome"] == "erased"
        assert {Path(one["table"]).name: one["rows"] for one in document["tables"]} == {"customers": 1, "orders": 2}
        assert "canary" not in str(document)


def _earliest(office: Office, table: Table) -> int:
    return ChangeFeed(office.spark, table.path).log.listing().earliest


def test_a_hold_on_one_table(office: Office) -> None:
    office.holds = [Hold(office.orders.path, NOW.date() + dt.timedelta(days=9), "tax law")]
    office.receive("R-1", email=CANARY)
    office.go()
    assert office.states() == {"R-1": "partial"}
    assert office.rows(office.customers) == set(range(5))
    assert {90, 91} <= office.rows(office.orders)
    document = office.register.certificate("R-1")
    assert document is not None
    assert (document["outcome"], [one["basis"] for one in document["holds"]]) == ("partial", ["tax law"])


class NothingToErase(SinkErasure):
    def erase(self, task: ErasureTask) -> dict[str, int]:  # noqa: ARG002
        raise AssertionError("it has no position")

    def purge(self, task: ErasureTask, *, now: dt.datetime) -> PurgeResult:  # noqa: ARG002
        raise AssertionError("it has no position")

    def scan(self, terms: SearchTerms) -> ScanResult:  # noqa: ARG002
        return ScanResult()


def kept_rows(spark: SparkSession) -> set[str]:
    """What Spark keeps in memory and on disk, except for the states that Delta keeps."""
    jsc: Any = spark.sparkContext._jsc
    names = {number: str(rows.name()) for number, rows in jsc.getPersistentRDDs().items()}
    return {f"{number} {name}" for number, name in names.items() if not name.startswith("Delta Table State")}


class NothingYet(MemorySink):
    """A target that a configuration has led to by mistake: nothing of the pipeline is in it."""

    @property
    def erasure(self) -> SinkErasure:
        return NothingToErase()

    def position(self) -> Position:
        return Position()


def test_what_is_refused_on_the_way_to_a_certificate(
    office: Office, tmp_path: Path, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is stopped again and again, each time before anything was done that should not be, and goes on."""
    office.receive("R-1", "R-2", email=CANARY)
    path, every, kept = office.customers.path, office.requests, kept_rows(office.spark)

    # A request that is left out, by an edited plan, would stay in a run that has ended, its person erased or not
    office.requests = every[:1]
    with pytest.raises(ConfigError, match=r"not the requests of run er-1: they differ by R-2$"):
        office.go()
    office.requests = every

    # Another run at the same time
    with monkeypatch.context() as quick:
        quick.setattr(register_held, "_POLL_SECONDS", 0.2)
        quick.setattr(register_held, "RENEW_SECONDS", 0.1)
        with office.register.lease("er-1"), pytest.raises(LeaseHeld):
            office.go()

    # A plan with pipelines that carry the table by another address
    other = tmp_path / "elsewhere"
    other.symlink_to(path)
    copies = [
        Copy(name, str(address), ("customer_id",), MemorySink())
        for name, address in (("crm", other), ("gone", tmp_path / "nothing"), ("shop", path))
    ]
    planned = make_plan(
        office.spark, office.graph(), copies, office.requests, (), run="er-1", approve_above=100, now=NOW
    )
    assert [f"crm replicates {path} under another address" in one for one in planned.problems] == [True]
    assert any("pipeline gone replicates" in one for one in planned.warnings)
    assert [one.pipeline for one in planned.sinks] == ["shop"]
    assert kept_rows(office.spark) <= kept

    # More rows than were approved
    with pytest.raises(ConfigError, match="no approver"):
        office.go(approve_above=1)
    assert office.states() == {"R-1": "received", "R-2": "received"}
    assert kept_rows(office.spark) <= kept
    assert {90, 91} <= office.rows(office.orders)

    # Pipelines that are configured no more, or carry the table to another target by now, whether a plan has seen them or
    # not; a sink that forgets nothing; a target without a position, which looks like one where everything was forgotten
    office.register.record_carriers([Carrier("shop", path, "topic a"), Carrier("other", "/t", "")])
    sinks = [{"pipeline": name, "table": path} for name in ("crm", "shop")]  # of a version that kept no carriers
    office.register.begin("er-0", [], "digest", {"sinks": sinks})
    now = (
        Copy("shop", path, ("customer_id",), MemorySink(), "topic b"),
        Copy("new", path, ("customer_id",), NothingYet()),
    )

    # A table that is configured no more: what was erased in it is purged and looked through too
    with pytest.raises(Died):
        office.go(mortal=True, copies=now)  # right after the rows were found
    assert kept_rows(office.spark) <= kept
    with pytest.raises(ConfigError, match=rf"has changed since the run began: {office.orders.path}$"):
        office.go(tables=1, copies=now)

    # Steps without a MAC, as an earlier release has recorded them
    waiting = office.go(immediate=False, copies=now)
    assert waiting.state == "propagated"
    pg.query("update {schema}.step set facts = facts - 'mac'")
    with pytest.raises(VerificationError, match=r"was not recorded by run er-1") as refused:
        office.go(copies=now)
    assert "--adopt-steps" in str(refused.value.hint)

    # A certificate that would name the person
    with pytest.raises(Exception, match="would contain an identifier"):
        office.go(adopt=True, copies=now, out_of_reach=(f"the mailbox of {CANARY}",))
    assert office.register.certificate("R-1") is None
    assert office.states() == {"R-1": "verified", "R-2": "verified"}

    office.go(copies=now)
    assert office.states() == {"R-1": "certified", "R-2": "certified"}
    assert office.rows(office.orders) == set(range(10))
    document = office.register.certificate("R-1")
    assert document is not None
    unverified = [one["place"] for one in document["unverified"]]
    assert unverified == ["shop", "pipeline crm", "pipeline shop, to topic a", "pipeline new"]
    assert {one["pipeline"] for one in document["sinks"]} == {"shop", "new"}


def test_steps_that_no_run_has_recorded(office: Office, pg: Pg) -> None:
    """Inserted by a user with rights on the tables and no key: the certificate would tell of an erasure that never was."""
    office.receive("R-1", email=CANARY)
    tables = [office.customers.path, office.orders.path]
    versions = dict.fromkeys(tables, 1)
    people = dict.fromkeys(tables, "customer_id")
    scan = {"finds": 0, "checked": [], "unseen": []}
    steps: list[tuple[str, str, Any]] = [("", "resolve", {"versions": versions, "rows": {}, "people": people})]
    steps += [(path, "delete", {"rows": 1, "versions": [9]}) for path in tables]
    steps += [(path, "purge", {"done": {}, "out_of_reach": []}) for path in tables]
    steps += [("request R-1", "scan", scan)]
    for place, step, facts in steps:
        pg.query(
            "insert into {schema}.step (run, table_name, step, facts) values ('er-1', %s, %s, %s)",
            place,
            step,
            Jsonb(facts),
        )
    pg.query("update {schema}.request set state = 'verified', reached = 'verified'")
    with pytest.raises(VerificationError, match=r"was not recorded by run er-1"):
        office.go()
    assert office.register.certificate("R-1") is None
    assert {90, 91} <= office.rows(office.orders)
    # Nor is anything left out that was found
    pg.query("delete from {schema}.step")
    pg.query("update {schema}.request set state = 'received', reached = 'received'")
    with office.register.lease("er-1") as held:
        held.begin_deleting(["R-1"])
    with pytest.raises(VerificationError, match="no longer has the rows that this run had found"):
        office.go()


def test_the_figures_of_each_certificate(office: Office) -> None:
    """Against what Spark and Delta count: of each request alone, or said to be of all."""
    staff = Table(office.spark, f"{office.customers.path}-staff", "staff_no long, name string")
    staff.sql("insert into {t} values (1, 'a'), (2, 'b')")
    tables = {"customers": office.customers.path, "orders": office.orders.path, "staff": staff.path}
    employee = PersonalTable(staff.path, "employee", "staff_no")
    graph = Graph.of(
        {**SUBJECTS, "employee": Subject("employee", {"staff_no": "exact"})}, [*office.graph().order, employee], ()
    )
    wanted = {
        "R-1": (CANARY, "customer_id = 700"),
        "R-2": ("p3@example.org", "customer_id = 3"),
        "R-3": (None, "staff_no = 2"),
    }
    people = {id: {"email": email} if email else {"staff_no": "2"} for id, (email, _) in wanted.items()}
    office.receive(*people, email=CANARY, add=False)
    office.requests = [
        replace(one, identifiers=people[one.id], subject="employee" if one.id == "R-3" else "customer")
        for one in office.requests
    ]
    office.register.add(office.requests, office.keys)
    office.register.begin("er-1", list(people), "digest")
    counts = {
        id: {
            name: office.spark.read.format("delta").load(tables[name]).where(condition).count()
            for name in (("staff",) if id == "R-3" else ("customers", "orders"))
        }
        for id, (_, condition) in wanted.items()
    }
    assert counts == {"R-1": {"customers": 1, "orders": 2}, "R-2": {"customers": 1, "orders": 2}, "R-3": {"staff": 1}}
    with office.register.lease("er-1") as held:  # as a try leaves it that was killed after one that had to wait
        facts = {"done": {"files": 3}, "at_work": True, "interrupted": False}
        held.replace_step(staff.path, "purging", with_mac(office.keys, "er-1", staff.path, "purging", facts))
    office.go(graph=graph)
    for id, expected in counts.items():
        document = office.register.certificate(id)
        assert document is not None
        names = {path: name for name, path in tables.items()}
        assert {names[one["table"]]: one["rows"] for one in document["tables"]} == expected
        purges = {names[one["place"]]: one for one in document["purges"]}
        assert purges.keys() == expected.keys()
        for name, purge in purges.items():
            removed = _vacuumed(office, tables[name])
            assert removed > 0
            assert purge["files"] == removed + (3 if name == "staff" else 0)
            assert purge["counted_for"] == "all 3 requests of the run"
            assert ("counted" in purge) == (name == "staff")
        assert "the request was received" in document["out_of_reach"][0]


def _vacuumed(office: Office, path: str) -> int:
    """As Delta's own history has it."""
    ended = office.spark.sql(f"describe history delta.`{path}`").where("operation = 'VACUUM END'").collect()
    return sum(int(one["operationMetrics"]["numDeletedFiles"]) for one in ended)


def test_two_who_may_be_one(office: Office) -> None:
    """Whether they are one person or share an e-mail nobody but a person can tell, nor who has very many identifiers."""
    office.customers.sql(f"insert into {{t}} values (701, '{CANARY}')")
    office.receive("R-1", customer_id="700")
    with pytest.raises(ConfigError, match=r"no approver .*R-1 \(2 values of customer_id\)"):
        office.go()
    assert {700, 701} <= office.rows(office.customers)
    # Nor may so many identifiers be one person's
    office.customers.sql(
        f"insert into {{t}} select 700, concat('alias', id, '@example.org') from range({LEARNED_LIMIT})"
    )
    with pytest.raises(ConfigError, match=rf"\(2 values of customer_id and {LEARNED_LIMIT + 2} further identifiers\)"):
        office.go()
    assert office.states() == {"R-1": "received"}
    office.register.approve("R-1", "the data protection officer")
    office.requests = [replace(one, approver="the data protection officer") for one in office.requests]
    office.go()
    assert office.rows(office.customers) == set(range(5))


def test_nobody_is_found(office: Office) -> None:
    office.receive("R-1", email="unknown@example.org")
    before = {table.path: _latest(office, table) for table in (office.customers, office.orders)}
    waiting = office.go(immediate=False)
    assert waiting.state == "propagated"
    assert waiting.waits_until is not None
    assert waiting.deleted == {office.customers.path: 0, office.orders.path: 0}
    assert {path for path, rows in waiting.deleted.items() if rows} == set()
    for table in (office.customers, office.orders):
        assert erased_versions(office.spark, table.path, "er-1", since=0, marker=office.keys) == ()
        assert _latest(office, table) - before[table.path] <= 1  # a checkpoint's own commit


def _latest(office: Office, table: Table) -> int:
    return ChangeFeed(office.spark, table.path).log.latest()

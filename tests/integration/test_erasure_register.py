"""The register of erasures on a real PostgreSQL: nothing twice, nothing skipped, one run at a time, no identifier in it."""

from __future__ import annotations

import datetime as dt
import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from psycopg.conninfo import make_conninfo

from audit.erasure.model import STATES, Request, State
from audit.erasure.register import run_lease as register_held
from audit.erasure.register.identity import RegisterIncomplete, RegisterMismatch
from audit.erasure.register.leased_register import LeasedRegister
from audit.erasure.register.records import Added, Mark
from audit.erasure.register.schema import TABLES
from audit.erasure.register.store import Register
from audit.migrations import StateTooNew
from cdf.errors import ConfigError, Fenced, LeaseHeld, PositionError, SinkUnavailable, VerificationError
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.postgres_proxy import PostgresProxy

CANARY = "Anna.Canary@example.org"
TODAY = dt.datetime.now(dt.UTC).date()
LATER = TODAY + dt.timedelta(days=30)


class Secrets:
    """As ``RegisterKeys`` wants it: AES-256-GCM, and an HMAC beside it."""

    def __init__(self) -> None:
        self._cipher, self._key = AESGCM(os.urandom(32)), os.urandom(32)

    def encrypt(self, text: str, *, about: str) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._cipher.encrypt(nonce, text.encode(), about.encode())

    def decrypt(self, data: bytes, *, about: str) -> str:
        return self._cipher.decrypt(data[:12], data[12:], about.encode()).decode()

    def mark(self, name: str, value: str) -> bytes:
        return hmac.digest(self._key, f"{name}\0{value}".encode(), "sha256")

    def marks(self, name: str, value: str) -> list[bytes]:
        return [self.mark(name, value)]


KEYS = Secrets()


@pytest.fixture
def register(pg: Pg) -> Register:
    register = Register(pg.dsn, schema=pg.schema)
    register.prepare()
    return register


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_held, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(register_held, "RENEW_SECONDS", 0.3)


def asked(id: str, due: dt.date = LATER, **other: Any) -> Request:
    request = Request(id, "customer", {"email": CANARY}, dt.date(2026, 1, 2), due, "Art. 17", "privacy desk")
    return replace(request, **other)


def begun(register: Register, *ids: str, run: str = "run-1") -> str:
    register.add([asked(id) for id in ids], KEYS)
    register.begin(run, ids, "digest")
    return run


def through(held: LeasedRegister, last: State, *ids: str) -> None:
    for state in STATES[1 : STATES.index(last) + 1]:
        held.move(ids, state)


def document(id: str, outcome: str = "erased", **more: Any) -> dict[str, Any]:
    return {"request": {"id": id}, "outcome": outcome, **more}


def states(register: Register) -> dict[str, str]:
    return {one.id: one.state for one in register.requests()}


def at_once(*acts: Callable[[], object]) -> list[object]:
    """What each of them returns, or fails with."""
    results: list[object] = [None] * len(acts)
    start = threading.Barrier(len(acts))

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = acts[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# ── being made ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_prepare_at_once_and_again(pg: Pg) -> None:
    pg.query("drop schema {schema}")
    made = [Register(pg.dsn, schema=pg.schema).prepare for _ in range(6)]
    assert at_once(*made) == [None] * 6
    assert pg.query("select count(*) from {schema}.lease") == [(1,)]
    begun(Register(pg.dsn, schema=pg.schema), "r1")
    Register(pg.dsn, schema=pg.schema).prepare()
    assert states(Register(pg.dsn, schema=pg.schema)) == {"r1": "received"}


def test_a_register_of_release_0_1_gets_what_it_lacks(pg: Pg, register: Register) -> None:
    begun(register, "r1")
    pg.query("drop table {schema}.register, {schema}.carrier, {schema}.schema_version")
    later = Register(pg.dsn, schema=pg.schema)
    later.prepare()
    assert states(later) == {"r1": "received"}
    assert pg.query("select version from {schema}.schema_version order by 1") == [(1,), (2,)]
    pg.query("drop table {schema}.schema_version")
    Register(pg.dsn, schema=pg.schema).prepare()  # a complete one needs nothing
    assert pg.query("select to_regclass('{schema}.schema_version')") == [(None,)]


@pytest.mark.parametrize("lost", ["carrier", "mark", "everything"])
def test_a_lost_table_is_never_created_again(pg: Pg, register: Register, lost: str) -> None:
    lost = ", ".join(TABLES) if lost == "everything" else lost
    pg.query(f"drop table {lost} cascade")
    for one in (register, Register(pg.dsn, schema=pg.schema)):
        with pytest.raises(RegisterIncomplete) as refused:
            one.prepare()
        assert refused.value.hint == "restore it from its backup"
    assert pg.query(f"select to_regclass('{{schema}}.{lost.split(', ')[0]}')") == [(None,)]


def test_a_newer_register_is_refused_by_every_command_and_unchanged(pg: Pg, register: Register) -> None:
    begun(register, "r1")
    pg.query("insert into {schema}.schema_version (version, summary) values (3, 'of a newer release')")
    contents = lambda: [pg.query(f"select t::text from {{schema}}.{name} t") for name in TABLES]  # noqa: E731
    before = contents()
    calls: list[Callable[[Register], object]] = [
        lambda one: one.prepare(),
        lambda one: one.check(KEYS),
        lambda one: one.bind(KEYS),
        lambda one: one.requests(),
        lambda one: one.add([asked("r2")], KEYS),
        lambda one: one.lease("run-1").__enter__(),
    ]
    for call in calls:
        with pytest.raises(StateTooNew, match="has version 3, and this release knows versions up to 2"):
            call(Register(pg.dsn, schema=pg.schema))
    assert contents() == before


def test_a_role_without_the_right_to_create_may_use_one_that_is_there(pg: Pg, register: Register) -> None:
    role = f"clerk_{pg.schema}"
    pg.query(f"create role {role} login password 'clerk'")
    try:
        dsn = make_conninfo(pg.dsn, user=role, password="clerk")
        with pytest.raises(ConfigError, match="refused"):
            Register(dsn, schema=pg.schema).requests()
        pg.query(f"grant usage on schema {{schema}} to {role}")
        pg.query(f"grant select, insert, update, delete on all tables in schema {{schema}} to {role}")
        clerk = Register(dsn, schema=pg.schema)
        clerk.prepare()
        with clerk.lease(begun(clerk, "r1")) as held:
            through(held, "deleted", "r1")
    finally:
        pg.query(f"drop owned by {role}")
        pg.query(f"drop role {role}")


# ── taking in ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_request_again_is_known_and_other_content_is_refused_whole(register: Register) -> None:
    first = register.add([asked("b"), asked("a"), asked("b")], KEYS)
    assert (first.new, first.known) == (("b", "a"), ())
    register.approve("a", "the officer")  # what happened since does not make it another request
    again = register.add([asked("a"), asked("c")], KEYS)
    assert (again.new, again.known) == (("c",), ("a",))
    for other in ({"identifiers": {"email": "other"}}, {"due": TODAY}, {"approver": "x"}, {"subject": "employee"}):
        with pytest.raises(ConfigError, match=r"already, with other content: a$") as found:
            register.add([asked("d"), asked("a", **other)], KEYS)
        assert CANARY not in str(found.value.to_dict())
    with pytest.raises(ConfigError, match="other content: e"):
        register.add([asked("e"), asked("e", due=TODAY)], KEYS)
    assert states(register) == {"a": "received", "b": "received", "c": "received"}
    assert len(register.history("a")) == 2


def test_two_add_the_same_at_once(pg: Pg, register: Register) -> None:
    many = [asked(f"r{number}") for number in range(5000)]

    def let_go() -> None:
        """Once both wait for the table, so that they insert at the same time."""
        with pg.connection.transaction():
            pg.query("lock table {schema}.request in share mode")
            start.set()
            waiting = "select count(*) from pg_locks where relation = '{schema}.request'::regclass and not granted"
            while pg.query(waiting) != [(2,)]:
                time.sleep(0.01)

    start = threading.Event()
    adding = [lambda given=given: start.wait() and register.add(given, KEYS) for given in (many, many[::-1])]
    added = [one for one in at_once(*adding, let_go) if isinstance(one, Added)]
    assert sorted(len(one.new) for one in added) == [0, 5000]
    assert len(register.requests()) == 5000


def test_overdue_ones_come_first_then_by_due_date(register: Register) -> None:
    days = {"late": 9, "soon": 1, "today": 0, "overdue": -1, "long": -40}
    today = dt.datetime.now(dt.UTC).date()  # not TODAY: the tests as a whole may run past midnight
    register.add([asked(id, today + dt.timedelta(days)) for id, days in days.items()], KEYS)
    found = register.requests()
    assert [one.id for one in found] == ["long", "overdue", "today", "soon", "late"]
    assert [one.overdue for one in found] == [True, True, False, False, False]
    assert [one.id for one in register.requests(["late", "long"])] == ["long", "late"]
    with pytest.raises(ConfigError, match=r"no request nobody$"):
        register.requests(["late", "nobody"])
    with pytest.raises(ConfigError, match=r"no request nobody$"):
        register.history("nobody")


def test_identifiers_are_in_no_table_and_in_no_text(pg: Pg, register: Register) -> None:
    begun(register, "r1")
    register.learn([("r1", "customer_id", CANARY), ("r1", "customer_id", CANARY), ("r1", "name", CANARY)], KEYS)
    register.learn([("r1", "name", CANARY)], KEYS)
    assert register.identifiers(["r1"], KEYS) == {"r1": {"email": CANARY}}
    assert register.learned(["r1"], KEYS) == [("r1", "customer_id", CANARY), ("r1", "name", CANARY)]
    tables = [name for (name,) in pg.query("select tablename from pg_tables where schemaname = %s", pg.schema)]
    stored = "".join(str(pg.query(f"select row_to_json(t) from {{schema}}.{name} t")) for name in tables)
    assert "privacy desk" in stored  # the control
    for spelling in (CANARY, CANARY.lower(), CANARY.encode().hex()):
        assert spelling not in stored + repr(register.requests()) + repr(register)


def test_a_ciphertext_opens_in_its_own_row_only(pg: Pg, register: Register) -> None:
    register.add([asked("r1"), asked("r2", identifiers={"email": "other"})], KEYS)
    pg.query(
        "update {schema}.request set sealed = (select sealed from {schema}.request where id = 'r2') where id = 'r1'"
    )
    with pytest.raises(InvalidTag):
        register.identifiers(["r1"], KEYS)


@pytest.mark.parametrize(
    "column", ["subject = 'employee'", "due = due + 1", "legal_basis = 'none'", "received = received - 1"]
)
def test_a_request_that_was_altered_is_named(pg: Pg, register: Register, column: str) -> None:
    """With another subject other tables would be erased and looked through, under a certificate of this request."""
    register.add([asked("r1"), asked("r2", approver="the first")], KEYS)
    register.approve("r2", "the officer")
    register.approve("r2", "another officer")

    def stored() -> list[Request]:
        return [
            Request(
                one.id,
                one.subject,
                {"email": CANARY},
                one.received,
                one.due,
                one.legal_basis,
                one.requester,
                one.approver,
            )
            for one in register.requests()
        ]

    register.check_content(stored(), KEYS)
    pg.query(f"update {{schema}}.request set {column} where id = 'r2'")
    with pytest.raises(VerificationError, match=r"as they were received: r2$"):
        register.check_content(stored(), KEYS)


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_states_go_forward_one_by_one_and_every_move_is_an_event(register: Register) -> None:
    with register.lease(begun(register, "a", "b")) as held:
        held.move(["a", "b"], "resolved", rows=3)
        held.move(["a"], "approved")
        for state in ("received", "deleted", "propagated"):
            with pytest.raises(PositionError, match=f"cannot become {state} where (a is approved|b is resolved)"):
                held.move(["a", "b"], state)  # type: ignore[arg-type]
        assert states(register) == {"a": "approved", "b": "resolved"}  # neither has moved
        held.move(["b"], "held", reason="tax law")
        (b,) = register.requests(["b"])
        assert (b.state, b.reason) == ("held", "tax law")
        held.move(["b"], "approved")
        held.move(["a"], "approved")  # again: nothing
        held.wait(["a", "b"], until := dt.datetime(2026, 12, 1, tzinfo=dt.UTC), "log retention")
        assert [(one.waits_until, one.waits_for) for one in register.requests()] == [(until, "log retention")] * 2
        held.move(["a"], "deleted")
        assert {one.id: one.waits_for for one in register.requests()} == {"a": None, "b": "log retention"}
        with pytest.raises(ConfigError, match="by its certificate"):
            held.move(["a"], "certified")
    said = [event.state for event in register.history("b")]
    assert said == ["received", "received", "resolved", "held", "approved"]
    assert register.history("b")[2].facts == {"run": "run-1", "rows": 3}


def test_history_and_certificates_are_never_altered(pg: Pg, register: Register) -> None:
    begun(register, "a")
    for statement in ("update {schema}.event set state = 'x'", "delete from {schema}.event", "truncate {schema}.event",
                      "delete from {schema}.certificate"):  # fmt: skip
        with pytest.raises(psycopg.errors.RaiseException, match="neither altered nor removed"):
            pg.query(statement)


def test_a_run_begins_once_and_takes_no_request_that_another_works_on(register: Register) -> None:
    begun(register, "a", "b", "c")
    register.begin("run-1", ["a", "b", "c"], "digest")  # again
    assert len(register.history("a")) == 2
    with pytest.raises(ConfigError, match="has begun with another plan"):
        register.begin("run-1", ["a"], "other")
    with register.lease("run-1") as held:
        through(held, "deleted", "a", "b")
        held.move(["b"], "failed", reason="target gone")
    with pytest.raises(ConfigError, match=r"a is deleted in run run-1$"):
        register.begin("run-2", ["a", "b", "c"], "new")
    with pytest.raises(ConfigError, match="there is no run run-2"):
        register.run("run-2")
    register.begin("run-2", ["b", "c"], "new", {"run": "run-2", "tables": []})
    assert register.plan("run-2") == {"run": "run-2", "tables": []}
    with pytest.raises(ConfigError, match="there is no run run-3"):
        register.plan("run-3")
    assert states(register) == {"a": "deleted", "b": "received", "c": "received"}
    with register.lease("run-1") as held:
        with pytest.raises(ConfigError, match="not in run run-1: b, c"):
            held.move(["a", "b", "c"], "propagated")
        held.finish()
    assert register.run("run-1").finished_at is not None
    assert (register.run("run-2").requests, register.run("run-2").finished_at) == (("b", "c"), None)


def test_a_run_that_has_begun_to_delete_keeps_its_requests(register: Register) -> None:
    """Also one that died before it could say what it had deleted."""
    begun(register, "a", "b")
    with register.lease("run-1") as held:
        through(held, "approved", "a", "b")
        held.begin_deleting(["a", "b"])
        held.begin_deleting(["a", "b"])
    with pytest.raises(ConfigError, match=r"a is approved in run run-1"):
        register.begin("run-2", ["a"], "new")
    with register.lease("run-1") as held:
        held.move(["b"], "partial")
        held.finish()
    register.begin("run-3", ["b"], "new")  # when the hold is over
    with register.lease("run-1") as held, pytest.raises(ConfigError, match="not in run run-1"):
        held.begin_deleting(["b"])


def test_steps_are_done_once(register: Register) -> None:
    at = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
    with register.lease(begun(register, "a")) as held:
        assert held.read_step("/data/t", "deleted") is None
        held.record_step("/data/t", "deleted", {"rows": 3, "at": at, "versions": (4,)})
        held.record_step("/data/t", "deleted", {"rows": 3, "at": at, "versions": (4,)})
        assert held.read_step("/data/t", "deleted") == {"rows": 3, "at": "2026-11-23T12:00:00Z", "versions": [4]}
        with pytest.raises(VerificationError, match="with other facts"):
            held.record_step("/data/t", "deleted", {"rows": 4})
        with pytest.raises(TypeError):
            held.record_step("/data/t", "purged", {"share": 0.5})
    assert [(one.step, one.facts["rows"]) for one in register.steps("run-1")] == [("deleted", 3)]


# ── one at a time ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_run_is_refused_while_the_first_lives(register: Register, short_lease: None) -> None:
    begun(register, "a")
    begun(register, "b", run="run-2")
    with register.lease("run-1") as held:
        time.sleep(2.5)  # longer than a lease
        with pytest.raises(LeaseHeld, match=r"run run-1 of .* has been active .* since \d{4}-.* UTC"):
            register.lease("run-2").__enter__()
        held.move(["a"], "resolved")
    with pytest.raises(Fenced):
        held.move(["a"], "approved")  # its block has ended
    with register.lease("run-2") as second:
        second.move(["b"], "resolved")
    assert states(register) == {"a": "resolved", "b": "resolved"}


def test_of_two_that_start_at_once_one_gets_it(register: Register, short_lease: None) -> None:
    begun(register, "a")

    def hold() -> str:
        with register.lease("run-1"):
            time.sleep(2)
        return "held"

    results = at_once(hold, hold)
    assert sorted(type(one).__name__ for one in results) == ["LeaseHeld", "str"]


@pytest.fixture
def frozen(register: Register, short_lease: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeasedRegister]:
    """A run that renews no more, as one that was stopped or killed."""
    begun(register, "a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(register_held, "RENEW_SECONDS", 3600.0)
        holding = register.lease("run-1")
        held = holding.__enter__()
    yield held
    holding.__exit__(None, None, None)


def test_whoever_was_paused_writes_nothing_more(register: Register, frozen: LeasedRegister) -> None:
    began = time.monotonic()
    with register.lease("run-1") as second:
        assert time.monotonic() - began < 8
        writes: tuple[Callable[[], None], ...] = (
            frozen.check,
            frozen.finish,
            lambda: frozen.move(["a"], "resolved"),
            lambda: frozen.record_step("t", "deleted", {}),
            lambda: frozen.wait(["a"], dt.datetime.now(dt.UTC), "x"),
            lambda: frozen.suppress(["a"], [("a", "email", b"1")], LATER),
            lambda: frozen.certify({"a": document("a", "partial")}),
            lambda: frozen.forget(["a"]),
        )
        for write in writes:
            with pytest.raises(Fenced, match="run run-1 writes nothing more"):
                write()
        second.move(["a"], "resolved")
    assert states(register) == {"a": "resolved", "b": "received"}
    assert register.marks() == ()


def test_whoever_was_paused_and_is_not_replaced_goes_on(register: Register, frozen: LeasedRegister) -> None:
    time.sleep(2.5)
    frozen.move(["a"], "resolved")
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(0.2):
            frozen.check()  # each write prolongs the lease

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with pytest.raises(LeaseHeld):
            register.lease("run-1").__enter__()
    finally:
        stopped.set()
        thread.join()


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_connection_leaves_all_or_nothing(pg: Pg, register: Register, proxy: PostgresProxy) -> None:
    begun(register, "a", "b")
    mine = Register(proxy.dsn, schema=pg.schema)
    with mine.lease("run-1") as held:
        proxy.cut("COMMIT", within="reached = case")
        with pytest.raises(SinkUnavailable):
            held.move(["a", "b"], "resolved")
        assert states(register) == {"a": "received", "b": "received"}
        assert len(register.history("a")) == 2
        proxy.drop_answer("COMMIT", within="reached = case")
        with pytest.raises(SinkUnavailable):
            held.move(["a", "b"], "resolved")  # it was done, and nobody heard of it
        held.move(["a", "b"], "resolved")
        assert len(register.history("a")) == 3
    proxy.cut("COMMIT", within="insert into")
    with pytest.raises(SinkUnavailable) as found:
        mine.add([asked("c")], KEYS)
    assert (found.value.__cause__, found.value.__context__) == (None, None)
    assert states(register) == {"a": "resolved", "b": "resolved"}


def test_a_renewal_that_fails_is_tried_again(
    pg: Pg, register: Register, proxy: PostgresProxy, short_lease: None, caplog: pytest.LogCaptureFixture
) -> None:
    mine = Register(proxy.dsn, schema=pg.schema)
    with caplog.at_level(logging.WARNING), mine.lease(begun(register, "a")) as held:
        proxy.cut("update .*lease", times=2)
        time.sleep(2.5)
        with pytest.raises(LeaseHeld):
            register.lease("run-1").__enter__()
        held.check()
    assert [one.getMessage() for one in caplog.records] == ["lease not renewed"] * 2


@pytest.mark.parametrize(
    ("dsn", "kind"),
    [
        ("host=127.0.0.1 port=1 user=nobody-secret", SinkUnavailable),
        ("host=/nonexistent-secret", SinkUnavailable),
        ("no dsn-secret", ConfigError),
    ],
)
def test_what_cannot_be_reached_is_told_without_its_dsn(dsn: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as found:
        Register(dsn).requests()
    assert "secret" not in str(found.value.to_dict())  # type: ignore[attr-defined]


def test_one_that_is_not_there_says_so(pg: Pg) -> None:
    with pytest.raises(ConfigError, match="does not exist, or is incomplete"):
        Register(pg.dsn, schema=pg.schema).requests()


def test_a_refused_value_is_not_told(register: Register) -> None:
    with pytest.raises(ConfigError, match="a text that PostgreSQL cannot store") as found:
        register.add([asked("r1", legal_basis=f"{CANARY}\0")], KEYS)
    assert CANARY not in str(found.value.to_dict())
    assert found.value.__context__ is None


# ── what remains ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_marks_live_until_their_date_or_a_recorded_release(pg: Pg, register: Register) -> None:
    marks = [("a", "email", b"1"), ("a", "customer_id", b"2"), ("b", "email", b"1")]
    with register.lease(begun(register, "a", "b")) as held:
        with pytest.raises(ConfigError, match="must have a mark, and no other may have one: b"):
            held.suppress(["a", "b"], marks[:2], LATER)
        today = dt.datetime.now(dt.UTC).date()  # not TODAY: the tests as a whole may run past midnight
        held.suppress(["a", "b"], marks, today)
        held.suppress(["a", "b"], marks, today)
        assert len(register.marks()) == 3
        pg.query("update {schema}.mark set until = until - 1")
        assert register.marks() == ()
        held.suppress(["a", "b"], marks, LATER)
        assert register.marks("customer")[0] == Mark(b"2", "customer", "customer_id", "a", LATER)
        assert register.marks("employee") == ()
        with pytest.raises(ConfigError, match="who decided"):
            register.release(["b"], "the officer", " ")
        assert register.release(["b"], "the officer", "customer again") == 1
        with pytest.raises(ConfigError, match="nothing to release"):
            register.release(["b"], "the officer", "customer again")
        assert register.history("b")[-1].facts == {"released": 1, "by": "the officer", "reason": "customer again"}
        held.suppress(["b"], marks[2:], LATER)  # the run goes on after a crash: the decision stands
        assert {(one.request, one.name) for one in register.marks()} == {("a", "email"), ("a", "customer_id")}
        assert register.release_mark(b"2", "the officer", "a test customer") == 1
    register.begin("run-2", ["b"], "new")
    with register.lease("run-2") as held:
        held.suppress(["b"], marks[2:], LATER)  # erased once more
    assert {(one.request, one.name) for one in register.marks()} == {("a", "email"), ("b", "email")}


def test_only_a_verified_request_is_certified_and_then_forgotten(pg: Pg, register: Register) -> None:
    with register.lease(begun(register, "a", "b", "c")) as held:
        register.learn([("a", "name", CANARY)], KEYS)
        through(held, "purged", "a", "b", "c")
        with pytest.raises(PositionError, match="cannot become certified where a is purged"):
            held.certify({"a": document("a"), "b": document("b", "partial")})
        assert register.certificate("b") is None  # neither has one
        with pytest.raises(ConfigError, match="not a certificate of request a"):
            held.certify({"a": document("b")})
        held.certify({"b": document("b", "partial", left=2), "c": document("c", "partial")})
        held.certify({"b": document("b", "partial", left=2)})  # again, after a crash
        held.certify({"b": document("b", "partial", left=1)})
        held.move(["a", "b"], "verified")
        held.move(["a"], "failed")
        with pytest.raises(PositionError, match="a is failed"):
            held.certify({"a": document("a")})
        held.move(["a"], "verified")
        held.certify({"a": document("a"), "b": document("b")})
        held.certify({"a": document("a"), "b": document("b")})
        with pytest.raises(PositionError):
            held.move(["a"], "failed")
        assert states(register) == {"a": "certified", "b": "certified", "c": "partial"}
        with pytest.raises(
            PositionError, match="only the identifiers of certified requests can be deleted: c is partial"
        ):
            held.forget(["a", "c"])
        assert register.identifiers(["a"], KEYS)
        held.forget(["a", "b"])
        held.forget(["a", "b"])
    assert register.certificate("b") == document("b")
    chain = pg.query(
        "select document ->> 'left', supersedes is not distinct from lag(issued_at) over (order by issued_at)"
        " from {schema}.certificate where request = 'b' order by issued_at"
    )
    assert chain == [("2", True), ("1", True), (None, True)]
    assert register.learned(["a"], KEYS) == []
    for reading in (lambda: register.identifiers(["a"], KEYS), lambda: register.learn([("a", "n", "v")], KEYS)):
        with pytest.raises(ConfigError, match="are deleted, because they are certified: a"):
            reading()
    assert register.add([asked("a")], KEYS).known == ("a",)  # the same request is still known
    with pytest.raises(ConfigError, match="other content: a"):
        register.add([asked("a", identifiers={"email": "somebody else"})], KEYS)
    with pytest.raises(ConfigError, match="a is certified in run run-1"):
        register.begin("run-2", ["a"], "new")


def test_an_earlier_register_of_whom_all_are_forgotten_takes_no_other_keys(pg: Pg, register: Register) -> None:
    """Nothing opens any more that would show it: the marks would know nobody."""
    with register.lease(begun(register, "a")) as held:
        through(held, "verified", "a")
        held.certify({"a": document("a", signature={"id": "00ff"})})
        held.finish()
    pg.query("update {schema}.register set keys = null")
    for other in (None, "1234"):
        with pytest.raises(RegisterMismatch):
            register.bind(KEYS, other)
    register.bind(KEYS, "00ff")


def test_thousands_are_a_few_statements(register: Register) -> None:
    ids = [f"r{number}" for number in range(5000)]
    began = time.monotonic()
    with register.lease(begun(register, *ids)) as held:
        register.learn([(id, "customer_id", id) for id in ids], KEYS)
        through(held, "verified", *ids)
        held.suppress(ids, [(id, "email", KEYS.mark("email", id)) for id in ids], LATER)
        held.certify({id: document(id) for id in ids})
        held.forget(ids)
    assert time.monotonic() - began < 30
    assert set(states(register).values()) == {"certified"}

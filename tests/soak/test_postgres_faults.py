"""Random windows through a proxy that loses connections and answers, on a server that crashes, with runners that wake up
late: after every window, applied or not, the target equals the model at its position.

DELTARELAY_SOAK=full makes it long; DELTARELAY_TEST_SEED repeats a run, as far as the moments of faults can be repeated.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.changes.window import Window
from cdf.errors import CdfError, Fenced, LeaseHeld, WindowOutOfOrder
from cdf.testing import SampleTable
from cdf.testing.model import COLUMNS, KEY, History, random_history
from connectors.postgres import PostgresSink
from connectors.postgres.state import lease as leases
from infra.embedded.postgres import EmbeddedPostgres
from tests.fixtures.postgres_proxy import PostgresProxy

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

WINDOWS = 300 if os.environ.get("DELTARELAY_SOAK") == "full" else 30
TARGET = "public.soak"
OF_WINDOW = "set version"
PATIENCE_SECONDS = 180.0


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every runner that is cut off from the server leaves its lease behind."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.5)


class Soak:
    def __init__(
        self, spark: SparkSession, server: EmbeddedPostgres, proxy: PostgresProxy, chance: random.Random
    ) -> None:
        schema = StructType()
        for name, kind in COLUMNS.items():
            schema.add(name, kind)
        self.table = SampleTable(spark, schema, KEY, table="soak")
        self.server, self.proxy, self.chance = server, proxy, chance
        self.counts: Counter[str] = Counter()
        self.history = long_history(chance, 4 * WINDOWS)
        self._deck: list[str] = []

    # ── what is applied ──────────────────────────────────────────────────────────────────────────────────────────

    def window(self, first: int) -> Window:
        last = min(self.history.last, first + self.chance.choice([0, 0, 1, 2, 5]))
        versions = self.history.versions[first - 1 : last]
        return self.table.window(first, *([version.changes] if version.changes else [] for version in versions))

    def new_sink(self) -> PostgresSink:
        return PostgresSink(self.proxy.dsn, table=TARGET, small_window_bytes=self.chance.choice([0, 1 << 20, 1 << 20]))

    def one_window(self) -> None:
        """Try until something has been applied; each try has a fault of its own, or is spared."""
        before = self.position()
        window = None if before is None else self.window(before + 1)
        deadline = time.monotonic() + PATIENCE_SECONDS
        sink, again = self.new_sink(), False
        try:
            while self.position() == before:
                assert time.monotonic() < deadline, "nothing gets through any more"
                with self.fault(sink, again=again):
                    try:
                        self._step(sink, window)
                    except WindowOutOfOrder:
                        self.counts["asked to open again"] += 1
                    except CdfError as error:
                        if not error.transient:
                            raise
                        self.counts[f"tries that ended in {error.code}"] += 1
                self.equal()
                again = True
                if self.chance.random() < 0.5:
                    sink.close()
                    sink = self.new_sink()
        finally:
            sink.close()

    def _step(self, sink: PostgresSink, window: Window | None) -> None:
        position = sink.open(self.table.source())
        if window is None:
            sink.load(self.table.snapshot(0, list(self.history.start.values())))
        elif position.version is not None and position.version < window.last:
            sink.apply(window)

    # ── what it came to ──────────────────────────────────────────────────────────────────────────────────────────

    def asked(self, statement: str) -> list[tuple[Any, ...]]:
        """Past the proxy; a server that is starting is waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with psycopg.connect(self.server.dsn, autocommit=True) as connection:
                    cursor = connection.execute(statement)  # type: ignore[call-overload]
                    return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def position(self) -> int | None:
        if self.asked("select to_regclass('deltarelay.position')") == [(None,)]:
            return None
        rows = self.asked("select version from deltarelay.position")
        return rows[0][0] if rows else None

    def equal(self) -> None:
        """In full, and at one moment: rows and position by one statement."""
        if self.position() is None:
            assert self.asked(f"select to_regclass('{TARGET}')") == [(None,)]
            return
        columns = ", ".join(COLUMNS)
        found = self.asked(f"select p.version, {columns} from deltarelay.position p left join {TARGET} on true")
        expected = [tuple(row[name] for name in COLUMNS) for row in self.history.state(found[0][0]).values()]
        rows = [row[1:] for row in found if row[1] is not None]
        assert sorted(rows, key=repr) == sorted(expected, key=repr), f"at version {found[0][0]}"

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def fault(self, sink: PostgresSink, *, again: bool) -> Iterator[None]:
        kinds: dict[str, Callable[[PostgresSink], threading.Thread | None]] = {
            "none": lambda _: None,  # also after a try that failed, more often than not
            "bytes to the server": lambda _: self.proxy.cut_at(self.chance.randrange(8000), "to_server"),
            "bytes to the client": lambda _: self.proxy.cut_at(self.chance.randrange(6000), "to_client"),
            "commit lost": lambda _: self._at_commit(self.proxy.cut),
            "answer lost": lambda _: self._at_commit(self.proxy.drop_answer),
            "answer lost, then refused": self._answer_lost_and_refused,
            "staging's answer lost": lambda _: self._in_staging(self.proxy.drop_answer),
            "staging's commit lost": lambda _: self._in_staging(self.proxy.cut),
            "crash": lambda _: self._later(self._crash),
            "crash before the commit": lambda _: self._crash_at("select .* for update"),
            "backends killed": lambda _: self._later(self._kill_backends),
            "forgotten": lambda _: self._later(lambda: self.proxy.forget_all()),
            "zombie": self._zombie,
        }
        self._deck = self._deck or self.chance.sample(list(kinds), len(kinds))
        kind = "none" if again and self.chance.random() < 0.6 else self._deck.pop()
        self.counts[kind] += 1
        thread = kinds[kind](sink)
        try:
            yield
        finally:
            if thread is not None:
                thread.join()
            self.counts["faults that struck"] += sum(rule.hits for rule in self.proxy.rules)
            self.proxy.clear()

    def _at_commit(self, lose: Callable[..., object]) -> None:
        lose("^commit", within=OF_WINDOW)

    def _in_staging(self, lose: Callable[..., object]) -> None:
        lose("^commit", within="(?i)^copy")

    def _answer_lost_and_refused(self, _: PostgresSink) -> None:
        rule = self.proxy.drop_answer("^commit", within=OF_WINDOW)
        rule.before = lambda: setattr(self.proxy, "refusing", True)

    def _later(self, strike: Callable[[], object]) -> threading.Thread:
        def struck() -> None:
            time.sleep(wait)
            strike()

        wait = self.chance.uniform(0, 1.5)
        thread = threading.Thread(target=struck)
        thread.start()
        return thread

    def _crash(self) -> None:
        self.server.stop("immediate")
        self.server.start()

    def _crash_at(self, pattern: str) -> None:
        """Staging is filled and committed; the statement then meets a server that has emptied it, by a new connection."""
        rule = self.proxy.cut(pattern)
        rule.before = self._crash

    def _kill_backends(self) -> None:
        self.asked("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'deltarelay'")

    def _zombie(self, sink: PostgresSink) -> None:
        """A runner that stood still for longer than its lease wakes up behind its successor's window."""
        before = self.position()
        if before is None:
            return
        sink.close()
        zombie, successor = self.new_sink(), self.new_sink()
        late, next_window = self.window(before + 1), self.window(before + 1)
        try:
            opened = False
            while not opened:  # a runner that was cut off has left its lease
                with suppress(LeaseHeld):
                    opened = bool(zombie.open(self.table.source()))
            assert zombie._open_target.renewal is not None
            zombie._open_target.renewal.stop()
            self.asked("update deltarelay.position set lease_until = clock_timestamp() - interval '1 s'")
            if self.chance.random() < 0.7:
                successor.open(self.table.source())
                successor.apply(next_window)
            else:
                successor.open(self.table.source())
            with pytest.raises(Fenced):
                zombie.apply(late)
        finally:
            with suppress(CdfError):
                zombie.close()
            successor.close()


def long_history(chance: random.Random, versions: int) -> History:
    while True:
        history = random_history(chance, 3 * versions)
        if history.last >= versions:
            return history


def test_after_every_window_and_fault_the_target_equals_the_model(
    spark: SparkSession, server_folder: Path, seed: int
) -> None:
    with EmbeddedPostgres(server_folder / "faults") as server, PostgresProxy(server.dsn) as proxy:
        soak = Soak(spark, server, proxy, random.Random(seed))
        began = time.monotonic()
        done = 0
        while done < WINDOWS and soak.position() != soak.history.last:
            soak.one_window()
            done += 1
        told = f"{done} windows to version {soak.position()} in {time.monotonic() - began:.0f} s: {dict(soak.counts)}"
        print(told)
        soak.equal()
        leftovers = soak.asked("select relname from pg_class where relname ~ '^(stage|load)_' and relkind = 'r'")
        sink = soak.new_sink()
        sink.open(soak.table.source())  # whoever comes last sweeps up
        sink.close()
        assert soak.asked("select relname from pg_class where relname ~ '^(stage|load)_' and relkind = 'r'") == [], (
            leftovers
        )
        assert soak.counts["faults that struck"] > WINDOWS / 10, told

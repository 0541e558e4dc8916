"""Random commits while a process follows the table, and faults every few seconds: at the end the target equals the source.

The follower is the command, so that its memory can be looked at from outside; the table is changed in the test's process,
by delta-rs as a rule, so that it changes quickly. DELTARELAY_SOAK=full makes it long (2,000 commits in a quarter of an hour,
or DELTARELAY_SOAK_COMMITS); DELTARELAY_TEST_SEED repeats the commits, but not the moments of the faults.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from infra.embedded.postgres import EmbeddedPostgres
from tests.acceptance.commands import CANARY, Database, Project, wait_for
from tests.fixtures.fix_postgres import Pg
from tests.soak.faults import Faults, Follower, lines_of
from tests.soak.memory import Memory, growth, memory_of
from tests.soak.quick_source import QuickSource
from tests.soak.random_source import Source, assert_equal_rows

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

FULL = os.environ.get("DELTARELAY_SOAK") == "full"
COMMITS = int(os.environ.get("DELTARELAY_SOAK_COMMITS") or (2_000 if FULL else 50))
PACE_SECONDS = 0.45 if FULL else 0.3
"""From commit to commit. What takes longer is made up for afterwards."""
ROUGH = COMMITS * 7 // 15 if FULL else COMMITS
"""Up to here everything happens to the follower; from then on one process stays, so that its memory can be judged."""
CATCH_UP_SECONDS = 240
REST_SECONDS = 20

DECK = (["cut"] * 14 + ["restart"] * 4 + ["kill"] * 2 + ["terminate"] * 2 + ["freeze"]) if FULL else ["cut", "restart"]
CALM_DECK = ["cut"] * 4 + ["restart"]
PAUSE = (1.0, 6.0) if FULL else (1.0, 3.0)
CALM_PAUSE = (2.0, 9.0)
"""Seconds from fault to fault."""

MOST_GROWTH_MIB = {"python": 24, "heap": 40, "classes": 16, "java": 128}
"""From the second quarter of a life to its last. The JVM's size moves with its collections, and is held to less."""


@pytest.fixture
def server(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(server_folder / "soak") as own:
        yield own


@pytest.fixture
def soaked(tmp_path: Path, server: EmbeddedPostgres, jars: str) -> Iterator[Project]:
    folder = tmp_path / "project"
    folder.mkdir()
    dsn = make_conninfo("", **(conninfo_to_dict(server.dsn) | {"password": CANARY}))
    project = Project(folder, Database(dsn, CANARY), jars, None, "it is killed, and its memory is looked at for long")
    yield project
    project.close()
    project.check_secret()


class Positions(threading.Thread):
    """Looks at the position all the time, as far as the server can be asked: it only ever goes forward."""

    def __init__(self, dsn: str) -> None:
        super().__init__(name="positions", daemon=True)
        self.samples = 0
        self.version = -1
        self.back: list[tuple[int, int]] = []
        self._dsn = dsn
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            with suppress(psycopg.Error), psycopg.connect(self._dsn, autocommit=True, application_name="test") as one:
                while not self._over.wait(0.05):
                    self._look(one.execute("select version from deltarelay.position").fetchone())

    def _look(self, row: tuple[int | None] | None) -> None:
        if row is None or row[0] is None:
            return
        self.samples += 1
        if row[0] < self.version:
            self.back.append((self.version, row[0]))
        self.version = row[0]

    def finish(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.timeout(3600)
def test_followed_through_random_commits_and_faults_the_target_equals_the_source(
    spark: SparkSession, soaked: Project, server: EmbeddedPostgres, delta_path: str, seed: int
) -> None:
    chance = random.Random(seed)
    source = Source(spark, delta_path, chance)
    table = QuickSource(source, delta_path, chance, by_spark=0.03)
    soaked.write(
        {"soak": _pipeline(delta_path, chance.randint(8, 40))}, rest="spark: {conf: {spark.driver.memory: 1g}}"
    )
    soaked.database.connection.close()  # the server will go away under it
    positions = Positions(server.dsn)
    positions.start()
    follower = Follower(soaked)
    assert follower.wait(), follower.now.describe()
    faults = Faults(follower, server, random.Random(seed), deck=DECK, pause=PAUSE)
    if not FULL:
        faults.first("kill")
    soak = Soak(table, follower, faults, positions)
    faults.start()
    try:
        soak.up_to(ROUGH)
        memory = soak.calmly_up_to(COMMITS) if FULL else []
    finally:
        faults.stop()
    faults.check()
    soak.caught_up()
    if not FULL:
        print(soak.memory())
    positions.finish()
    follower.now.terminate()
    assert follower.now.done().code == 0

    print(f"{table.version()} commits in {soak.seconds:.0f} s: {dict(sorted(soak.done.items()))}")
    print(f"faults: {dict(sorted(faults.counts.items()))}; given up and started again: {follower.gave_up}")
    lives = [lines_of(run) for run in follower.lives()]
    windows = [line for life in lives for line in life if line["event"] == "window applied"]
    queries = sum(line["event"] == "following" for life in lives for line in life)
    print(
        f"{len(lives)} processes, {queries} queries, {len(windows)} windows, {positions.samples} looks at the position"
    )

    told = f"seed {seed}"
    assert positions.back == [], told
    assert not [line for line in windows if "conflicts" in line], told
    versions = Counter(version for one in windows for version in range(one["first_version"], one["version"] + 1))
    assert not [version for version, count in versions.items() if count > 1], f"{told}: applied twice"
    with psycopg.connect(server.dsn, autocommit=True, application_name="test") as connection:
        assert_equal_rows(spark, Pg(server.dsn, "public", connection), source, told)
        staged = "select relname from pg_class where relname ~ '^(stage|load)_' and relkind = 'r'"
        assert connection.execute(staged).fetchall() == [], told
        connected = "select query from pg_stat_activity where application_name like 'deltarelay%'"
        wait_for(lambda: not connection.execute(connected).fetchall(), f"{told}: every session to end")
    verified = soaked.run("verify", "--json")
    assert verified.code == 0, (told, verified.out)
    assert verified.pipeline("soak")["equal"] is True
    wait_for(lambda: not _processes_of(soaked.folder), f"{told}: every process of the commands to end")
    if FULL:
        figures = {name: growth([getattr(one, name) for one in memory]) for name in MOST_GROWTH_MIB}
        print(f"growth in MiB: {figures}")
        assert not {name: grown for name, grown in figures.items() if grown > MOST_GROWTH_MIB[name]}, (told, figures)


class Soak:
    """The commits, at their pace, and the rests between them."""

    def __init__(self, table: QuickSource, follower: Follower, faults: Faults, positions: Positions) -> None:
        self.done: Counter[str] = Counter()
        self.began = time.monotonic()
        self.seconds = 0.0
        self._table, self._follower, self._faults, self._positions = table, follower, faults, positions
        self._due = self.began

    def up_to(self, version: int) -> None:
        while self._table.version() < version:
            self._commit()

    def calmly_up_to(self, version: int) -> list[Memory]:
        """One process to the end; cut connections and a server that restarts are all that happens to it."""
        self._faults.deal(CALM_DECK, CALM_PAUSE)
        with self._faults.held:
            assert self._follower.wait(CATCH_UP_SECONDS), self._follower.now.describe()
            one = self._follower.now
        found: list[Memory] = []
        rested = time.monotonic()
        while self._table.version() < version:
            self._commit()
            if time.monotonic() - rested > REST_SECONDS:
                with self._faults.held:
                    self.caught_up()
                    found.append(self.memory())
                    print(found[-1], flush=True)
                rested = time.monotonic()
        assert self._follower.now is one, "the follower was meant to stay"
        return found

    def caught_up(self) -> None:
        last = self._table.version()

        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self._positions.version != last:
            self._follower.keep()
            told = f"{last} was not reached, but {self._positions.version}\n{self._follower.now.describe()[-8000:]}"
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    def memory(self) -> Memory:
        return memory_of(self._follower.now, version=self._table.version(), began=self.began)

    def _commit(self) -> None:
        self._faults.check()
        before = self._table.version()
        self.done[self._table.change()] += 1
        self._due += PACE_SECONDS * (self._table.version() - before)
        time.sleep(max(0.02, self._due - time.monotonic()))
        self.seconds = time.monotonic() - self.began


def _pipeline(path: str, max_commits: int) -> dict[str, object]:
    return {
        "source": {"table": path, "key": ["a", "b"]},
        "sink": {"connection": "warehouse", "table": "public.soak"},
        "window": {"max_commits": max_commits},
    }


def _processes_of(folder: Path) -> list[int]:
    """Whatever was started by a command of the project, with its ``TMPDIR``; none where the system does not tell."""
    found = []
    mark = f"TMPDIR={folder}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found

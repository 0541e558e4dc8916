"""Random windows of a Delta table into an event log and into a compacted topic, on a broker that crashes, with runners that
fail between their lanes or wake up behind their successors: the log equals the feed, and both topics folded equal the table.

DELTARELAY_SOAK=full makes it long; DELTARELAY_TEST_SEED repeats a run, as far as the moments of faults can be repeated.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdf import ChangeFeed, Limits, Pipeline, RunResult, Step
from cdf.errors import CdfError
from connectors.kafka import Cluster, EventFormat, KafkaSink
from connectors.kafka.client import TransactionalProducer
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import PositionReader
from connectors.kafka.write import window_writer
from infra.embedded.kafka import EmbeddedKafka
from tests.acceptance.commands import descendants
from tests.fixtures.fix_kafka import IMPATIENT, JAVA_OPTIONS, Kafka, Message
from tests.soak.quick_source import QuickSource
from tests.soak.random_source import Source

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

FULL = os.environ.get("DELTARELAY_SOAK") == "full"
WINDOWS = 200 if FULL else 20
LANES = 3
POSITIONS = "soak-positions"
BY_DRIVER, BY_TASKS = 1 << 20, -1
TRANSACTION_BYTES = window_writer.TRANSACTION_BYTES
QUICK = {**IMPATIENT, "broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 500}
"""As long as its session lasts a broker that was killed cannot begin anew."""
PATIENCE_SECONDS = 180.0

Key = tuple[int, str]
Row = dict[str, Any]
Event = tuple[int, str, Row | None, Row | None]
"""Version, op (t: a tombstone), the row before and after."""
ORDER = ("delete", "update_preimage", "update_postimage", "insert")


class Watched(TransactionalProducer):
    """A producer whose steps are told to whoever listens to its client: that one may raise, wait, or do worse."""

    listeners: ClassVar[dict[str, Callable[[str], None]]] = {}

    def __init__(self, cluster: Cluster, name: str, **options: Any) -> None:
        super().__init__(cluster, name, **options)
        self._listener, self._name = self.listeners.get(str(cluster.client["client.id"])), name

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener(self._name)

    def begin(self) -> None:
        self._tell()
        super().begin()

    def produce(self, *record: Any) -> None:
        self._tell()  # of a lane: its events are with the broker, and the record of them is not
        super().produce(*record)

    def commit(self) -> None:
        self._tell()
        super().commit()
        self._tell()


class At:
    """Calls ``strike`` at one of the steps of a run: the lanes', the position's, the lease's; ``of`` some of them alone."""

    def __init__(self, number: int, strike: Callable[[], None], *, of: str = "", onwards: bool = False) -> None:
        self._number, self._strike, self._of, self._onwards = number, strike, of, onwards
        self._steps = count(1)
        self.struck = False

    def __call__(self, name: str) -> None:
        now = next(self._steps) if self._of in name else 0
        if now == self._number or (self._onwards and now > self._number):
            self.struck = True
            self._strike()


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """And short times: a runner that stands still leaves a lease behind, and a transaction."""
    monkeypatch.setattr("connectors.kafka.write.lane_writer.TransactionalProducer", Watched)
    monkeypatch.setattr("connectors.kafka.state.lease.TransactionalProducer", Watched)
    monkeypatch.setattr("connectors.kafka.state.lease.RENEW_SECONDS", 0.5)
    monkeypatch.setattr("connectors.kafka.state.lease.RUNNER_SECONDS", 3.0)
    monkeypatch.setitem(Lease._write.__kwdefaults__, "seconds", 2.0)
    monkeypatch.setattr(window_writer, "TRANSACTION_BYTES", TRANSACTION_BYTES)  # it changes during the test


class Soak:
    def __init__(self, spark: SparkSession, server: EmbeddedKafka, path: str, chance: random.Random) -> None:
        self.spark, self.server, self.path, self.chance = spark, server, path, chance
        self.kafka = Kafka(server.bootstrap_servers, "soak")
        self.table = QuickSource(Source(spark, path, chance), path, chance, by_spark=0.1)
        self.log, self.rows = self.kafka.topic("log"), self.kafka.topic("rows", cleanup_policy="compact")
        self.stands: dict[str, int] = {}
        self.begins = self.table.version()
        self.counts: Counter[str] = Counter()
        self._runs = count(1)
        self._deck: list[str] = []

    # ── what is run ──────────────────────────────────────────────────────────────────────────────────────────────

    def pipeline(self, topic: str, *, client: str = "test", small: int = BY_DRIVER) -> Pipeline:
        sink = KafkaSink(
            Cluster(self.kafka.bootstrap, {"client.id": client, "reconnect.backoff.max.ms": 500}),
            topic=topic,
            format=EventFormat("debezium" if topic == self.log else "row"),
            changes="all" if topic == self.log else "net",
            lanes=LANES,
            position_topic=POSITIONS,
            small_window_bytes=small,
        )
        limits = Limits(max_commits=self.chance.choice([1, 1, 3]))
        return Pipeline(ChangeFeed(self.spark, self.path), sink, key=["a", "b"], name="soak", limits=limits)

    def run(self, topic: str, small: int, at: At | None = None, *, in_lanes: bool = False) -> RunResult:
        """``in_lanes``: also few events; else they are sometimes, and in one transaction in the other runs."""
        window_writer.TRANSACTION_BYTES = 0 if in_lanes else self.chance.choice([0, TRANSACTION_BYTES])
        client = f"run-{next(self._runs)}"
        if at is not None:
            Watched.listeners[client] = at
        try:
            return self.pipeline(topic, client=client, small=small).run(progress=self._counted)
        finally:
            self.counts["faults that struck"] += at is not None and at.struck

    def _counted(self, _: Step) -> None:
        self.counts["windows"] += 1

    def one_round(self, topic: str) -> None:
        """Try until the topic has all that the table has; each try has a fault of its own, or is spared."""
        latest = self.table.version() + (self.chance.choice([1, 3, 6]) if self.stands else 0)
        while self.table.version() < latest:
            self.counts[self.table.change()] += 1
        latest = self.table.version()  # some changes are two commits
        deadline, again = time.monotonic() + PATIENCE_SECONDS, False
        while self.stands.get(topic) != latest:
            assert time.monotonic() < deadline, "nothing gets through any more"
            with self.tolerated("tries"):
                self.stands[topic] = self._tried(topic, again=again).position or 0
                continue
            again = True
            self.counts["windows left with some of their lanes"] += self._partly_there(topic)

    def _partly_there(self, topic: str) -> bool:
        reader = PositionReader(Cluster(self.kafka.bootstrap), POSITIONS, topic)
        try:
            state = reader.read()
        except KafkaFault:  # there is no position topic yet
            return False
        finally:
            reader.close()
        return state.pending is not None and any(state.get_progress(lane) for lane in range(LANES))

    @contextmanager
    def tolerated(self, whose: str) -> Iterator[None]:
        try:
            yield
        except CdfError as error:
            if not error.transient:
                raise
            self.counts[f"{whose} that ended in {error.code}"] += 1

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tried(self, topic: str, *, again: bool) -> RunResult:
        kinds: dict[str, tuple[int, Callable[[str, int], RunResult]]] = {
            "none": (1, self.run),  # also after a try that failed, more often than not
            "failure": (1, self._failure),
            "failure of a lane": (2, self._failure_of_a_lane),
            "crash": (1, self._crash),
            "zombie": (1, self._zombie),
            "workers killed": (1, self._workers_killed),
        }
        deck = [kind for kind, (cards, _) in kinds.items() for _ in range(cards)]
        self._deck = self._deck or self.chance.sample(deck, len(deck))
        kind = "none" if again and self.chance.random() < 0.75 else self._deck.pop()
        self.counts[kind] += 1
        return kinds[kind][1](topic, self.chance.choice([BY_DRIVER, BY_DRIVER, BY_DRIVER, BY_TASKS]))

    def _step(self, small: int) -> int:
        """One of those that most runs have: the tasks' own are not seen from here."""
        return self.chance.randint(2, 40 if small == BY_DRIVER else 20)

    def _failure(self, topic: str, small: int) -> RunResult:
        """A call fails, or the answer of one that succeeded is lost."""
        return self.run(topic, small, At(self._step(small), _fails))

    def _failure_of_a_lane(self, topic: str, _: int) -> RunResult:
        return self.run(topic, BY_DRIVER, At(self.chance.randint(1, 20), _fails, of="lane-"), in_lanes=True)

    def _crash(self, topic: str, small: int) -> RunResult:
        """At a step or a little later; the broker is back as soon as it can be."""

        def killed() -> None:
            if not wait:
                self.server.kill()
            back.start()

        def restarted() -> None:
            time.sleep(wait)
            self.server.kill()
            self.server.start()

        wait = self.chance.choice([0, 0, 0.05, 0.3])
        back = threading.Thread(target=restarted)
        try:
            return self.run(topic, small, At(self._step(small), killed))
        finally:
            if back.ident is not None:
                back.join()

    def _zombie(self, topic: str, small: int) -> RunResult:
        """A runner stands still, longer than its lease, and wakes up while its successor is at work, or after that."""

        def stands_still() -> None:
            asleep.set()
            wake.wait(PATIENCE_SECONDS)

        asleep, wake = threading.Event(), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(self.run, topic, small, At(self._step(small), stands_still, onwards=True))
            late.add_done_callback(lambda _: asleep.set())
            asleep.wait()
            try:
                return self.run(topic, BY_DRIVER, At(self.chance.choice([8, 14, 20, 30, 99]), wake.set))
            finally:
                wake.set()
                with self.tolerated("zombies"):
                    late.result()

    def _workers_killed(self, topic: str, _: int) -> RunResult:
        def kill() -> None:
            while not over.wait(pause):
                below = descendants(os.getpid())
                daemons = {pid for pid, (_, command) in below.items() if "pyspark.daemon" in command}
                for pid in daemons:
                    if below[pid][0] in daemons:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

        over, pause = threading.Event(), self.chance.uniform(0.05, 0.6)
        killer = threading.Thread(target=kill)
        try:
            return self.run(topic, BY_TASKS, At(9, killer.start))  # the window's bounds are recorded: the tasks begin
        finally:
            over.set()
            if killer.ident is not None:
                killer.join()

    # ── what it came to ──────────────────────────────────────────────────────────────────────────────────────────

    def holds_the_table(self) -> None:
        """The compacted topic: the last record of each key."""
        last = {message.key: message.value for message in self.read(self.rows)}
        rows = [json.loads(value) for value in last.values() if value is not None]
        at = self.stands[self.rows]
        assert {key_of(row): without_nulls(row) for row in rows} == {key_of(row): row for row in self.table_at(at)}, (
            f"at version {at}"
        )

    def read(self, topic: str) -> list[Message]:
        """By partition and offset; each event once."""
        messages = self.kafka.consume(topic)
        ids = Counter(dict(message.headers)["deltarelay.event_id"] for message in messages)
        assert len(ids) == ids.total(), f"{topic} has an event twice"
        return messages

    def table_at(self, version: int) -> Iterator[Row]:
        return in_json(self.spark.read.format("delta").option("versionAsOf", version).load(self.path))

    def told(self) -> dict[Key, list[Event]]:
        """What Delta's own reader of the feed says that has happened, after the rows that were there at first."""
        options = {"readChangeFeed": "true", "startingVersion": self.begins + 1, "endingVersion": self.stands[self.log]}
        feed = self.spark.read.format("delta").options(**options).load(self.path)
        return story(self.begins, self.table_at(self.begins), in_json(feed.drop("_commit_timestamp")))

    def logged(self) -> dict[Key, list[Event]]:
        events: dict[Key, list[Event]] = defaultdict(list)
        places: dict[Key, int] = {}
        for message in self.read(self.log):
            key = key_of(json.loads(message.key or b""))
            assert places.setdefault(key, message.partition) == message.partition
            version = int(dict(message.headers)["deltarelay.commit_version"] or b"")
            if message.value is None:
                events[key].append((version, "t", None, None))
            else:
                said = json.loads(message.value)
                assert said["source"]["commit_version"] == version
                images = without_nulls(said["before"]), without_nulls(said["after"])
                events[key].append((version, said["op"], *images))
        return events


def story(begins: int, rows: Iterable[Row], feed: Iterable[Row]) -> dict[Key, list[Event]]:
    """Each key's events in their order: removes before puts, and two images of one key in one version are one update."""
    events: dict[Key, list[Event]] = defaultdict(list)
    for row in rows:
        events[key_of(row)].append((begins, "r", None, row))
    replaced: set[tuple[int, Key]] = set()
    for row in sorted(feed, key=lambda row: (row["_commit_version"], ORDER.index(row["_change_type"]))):
        version, kind, key = row.pop("_commit_version"), row.pop("_change_type"), key_of(row)
        if kind in ("delete", "update_preimage"):
            events[key] += [(version, "d", row, None), (version, "t", None, None)]
            if kind == "update_preimage":
                replaced.add((version, key))
        elif kind == "update_postimage" and (version, key) in replaced:
            (_, _, before, _), _ = events[key][-2:]
            events[key][-2:] = [(version, "u", before, row)]
        else:
            events[key].append((version, "c", None, row))
    return events


def _fails() -> None:
    raise KafkaFault("_TRANSPORT")


def key_of(row: Row) -> Key:
    return row["a"], row["b"]


def without_nulls(row: Row | None) -> Row | None:
    """A column that was added later is null to a reader, and not there in an event."""
    return None if row is None else {name: value for name, value in row.items() if value is not None}


def in_json(rows: DataFrame) -> Iterator[Row]:
    for row in rows.toArrow().to_pylist():
        row["n"], row["t"] = str(row["n"]), f"{row['t']:%Y-%m-%dT%H:%M:%S.%fZ}"
        yield without_nulls(row) or {}


def test_after_random_windows_and_faults_the_log_equals_the_feed_and_the_topics_the_table(
    spark: SparkSession, kafka_folder: Path, delta_path: str, seed: int
) -> None:
    with EmbeddedKafka(kafka_folder / "soak", config=QUICK, java_options=JAVA_OPTIONS) as server:
        soak = Soak(spark, server, delta_path, random.Random(seed))
        began = time.monotonic()
        for topic in cycle((soak.log, soak.rows)):
            soak.one_round(topic)
            if topic == soak.rows:
                soak.holds_the_table()
            if soak.counts["windows"] >= WINDOWS and len(soak.stands) == 2:
                break
        told = f"in {time.monotonic() - began:.0f} s: {dict(soak.counts)}"
        print(told)
        assert soak.counts["faults that struck"] > WINDOWS / 20, told
        assert not FULL or soak.counts["windows left with some of their lanes"] > WINDOWS / 40, told
        assert soak.logged() == soak.told()
        for topic in (soak.log, soak.rows):
            assert soak.pipeline(topic).verify().equal

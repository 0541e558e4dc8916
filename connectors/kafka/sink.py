"""A Kafka topic that has each change of the source once, for consumers that read committed records.

    plan the events ─▶ record the window's bounds ─▶ each lane: its events and its record, in one transaction ─▶ position

Several lanes are several transactions: a reader may see one lane's part of a window before another's. A runner that died in
between leaves the bounds behind; its successor takes up exactly that window, and writes what is missing of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

from cdf.changes.few_rows import collect_few, limited
from cdf.changes.schema_diff import ChangeKind, printed_alike
from cdf.errors import (
    CdfError,
    PositionError,
    RowRejected,
    SinkUnavailable,
    TableReplaced,
    TargetNotReady,
    VerificationError,
    WindowOutOfOrder,
)
from cdf.sink.contract import Applied, Capabilities, Conflicts, Inspection, Position, Source, Standing
from cdf.sink.guard import erasing_versions
from cdf.timing import timed
from connectors.kafka import topics
from connectors.kafka.client import Cluster
from connectors.kafka.errors import KafkaFault, from_task, in_words, is_fenced
from connectors.kafka.position import Begun, LaneDone, Ledger, Runner, State, fenced
from connectors.kafka.verify import KafkaImage, newest_version
from connectors.kafka.write.envelope import TOMBSTONE, EventFormat, check_schema, snapshot_to_envelope, to_envelope
from connectors.kafka.write.json_form import has_form, rejection_of
from connectors.kafka.write.lane_writer import (
    AGAIN,
    LANE_FENCED,
    PARTITIONS_CHANGED,
    RUNNER_FENCED,
    TOO_LARGE,
    LaneWork,
    OpenLane,
    events_of,
    write_lane,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from connectors.kafka.erasure.sink_erasure import KafkaErasure

__all__ = ["KafkaSink"]

log = logging.getLogger("deltarelay.kafka")

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most so many bytes of change files are written from the driver: no Python workers, producers kept."""
DEFAULT_LANES = 4


@dataclass(frozen=True, slots=True)
class _Job:
    """A window or a snapshot as its events."""

    begun: Begun
    rows: Window | Snapshot
    events: DataFrame
    few: DataFrame | None = None
    """The events of a small window for the driver."""

    def confirm(self) -> None:
        from cdf.changes.window import Window

        if isinstance(self.rows, Window):
            self.rows.confirm()


class KafkaSink:
    """The sink. ``changes="all"``: every change is an event. ``"net"``: the last records per key are the table's rows, for a
    compacted topic.

    ``lanes`` is how many transactional producers share the work; each key belongs to one of them. ``create`` makes the topic
    where it is not there.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        topic: str,
        format: EventFormat | None = None,
        changes: Literal["all", "net"] = "all",
        lanes: int = DEFAULT_LANES,
        rejects: Literal["refuse", "dead_letter"] = "refuse",
        dead_letter_topic: str | None = None,
        create: topics.NewTopic | None = None,
        position_topic: str = topics.POSITION_TOPIC,
        pipeline: str | None = None,
        small_window_bytes: int = SMALL_WINDOW_BYTES,
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._format = format or EventFormat()
        self._net = changes == "net"
        self._lanes = lanes
        self._rejects: Literal["refuse", "dead_letter"] = rejects
        self._dead_letter_topic = (dead_letter_topic or f"{topic}.dead_letter") if rejects == "dead_letter" else None
        self._create = create
        self._position_topic = position_topic
        self._pipeline = pipeline
        self._name = pipeline or ""
        self._small_window_bytes = small_window_bytes
        self._runner: Runner | None = None
        self._found: topics.Topic | None = None
        self._open: dict[int, OpenLane] = {}
        self._warned = False

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="state" if self._net else "history",
            transactional=False,
            counts_conflicts=False,
            schema_changes=frozenset(kind.value for kind in ChangeKind),
        )

    @property
    def _form(self) -> str:
        return f"{self._format.envelope}{' schemas' if self._format.schemas else ''}{' net' if self._net else ''}"

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        after, before = change.after, change.before
        if after is not None and not has_form(after.dataType):
            return "its type has no form in an event that keeps every value"
        if before is None or before.name not in key:
            return None
        if after is None or after.name != before.name:
            return "it belongs to the key"
        # Where its schema stands beside it another type is another text
        alike = not self._format.schemas and printed_alike(before.dataType, after.dataType)
        if before.dataType != after.dataType and not alike:
            return "the key would be written in another way, and consumers would take it for another key"
        return None

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        with self._errors("looking at the topic"):
            return self._inspected(source, self._described())

    def _described(self) -> dict[str, topics.Topic]:
        return topics.described(self._cluster, self._position_topic, *self._written_to)

    def _inspected(self, source: Source, found: Mapping[str, topics.Topic]) -> Inspection:
        problems = check_schema(source.schema, source.key, self._format)
        ddl: list[str] = []
        for name in self._written_to:
            if name in found:
                continue
            if self._create is None:
                problems.append(f"there is no topic {name}: create it, or set `create:` in the sink")
            else:
                ddl.append(f"create topic {name}")
        state, position_problems = State(), list[str]()
        if self._position_topic in found:
            position_problems = topics.position_topic_problems(found[self._position_topic])
            problems += position_problems
            state = self._state()
        else:
            ddl.append(f"create topic {self._position_topic}")
        topic = found.get(self.topic)
        problems += filter(None, (topics.insync_problem(found[name]) for name in self._written_to if name in found))
        if state.version is not None or not position_problems:
            problems += self._state_problems(state, topic, source.key)
        problems += self._lane_problems(state, source.pipeline)
        warnings: list[str] = []
        if topic is not None:
            more, warnings = self._topic_problems(topic)
            problems += more
        warnings += [
            f"the settings of {name} may not be seen (DescribeConfigs), and are not looked at"
            for name, one in found.items()
            if not one.config
        ]
        return Inspection(state.position, tuple(problems), tuple(ddl), tuple(warnings))

    def _state_problems(self, state: State, topic: topics.Topic | None, key: tuple[str, ...]) -> list[str]:
        problems = []
        if state.key not in (None, key):
            problems.append(
                f"{self.topic} was written with the key ({', '.join(state.key or ())}): another one puts changes into other "
                "places. Set that key, or take a new topic"
            )
        if state.begun is not None and state.begun.form != self._form:
            problems.append(
                f"a window of {self.topic} was begun as `{state.begun.form}`, and `{self._form}` is set: "
                "finish it with the settings from before"
            )
        if topic is not None and state.partitions is not None and state.partitions != topic.partitions:
            problems.append(
                f"{self.topic} had {state.partitions} partitions and has {topic.partitions}: later changes of a key would "
                "not be where its earlier ones are. Take a new topic"
            )
        nothing = state.version is None and state.begun is None
        offsets = [] if topic is None else topics.offsets_of(self._cluster, topic)
        if nothing and any(high for _, high in offsets):
            problems.append(
                f"{self.topic} has had records, and {self._position_topic} no position for it: they are somebody else's, or "
                "the position was lost. Take a new topic, or `deltarelay position adopt` where it was lost"
            )
        written = any(done.events for done in state.done.values())
        anew = topic is not None and state.topic_id not in (None, topic.id)
        emptied = topic is not None and written and not any(high for _, high in offsets)
        if (topic is None and not nothing) or anew or emptied:
            problems.append(
                f"{self.topic} was written, and is gone or was made anew: its events are lost. Take a new topic"
            )
        return problems

    def _lane_problems(self, state: State, pipeline: str) -> list[str]:
        if state.lanes is None or state.lanes == self._lanes:
            return []
        way = f"`deltarelay position set {state.version} -p {pipeline}` goes on with {self._lanes} from there"
        if state.begun is not None or state.version is None:
            way = f"a part of a {'window' if state.version is not None else 'load'} has to be finished with those first"
        return [
            f"{self.topic} was written with {state.lanes} lanes, and {self._lanes} are set: set lanes: {state.lanes}; {way}"
        ]

    def _topic_problems(self, topic: topics.Topic) -> tuple[list[str], list[str]]:
        problems, warnings = [], []
        if topic.config and self._net and (not topic.compacted or topic.deleted):
            policy = topic.config.get("cleanup.policy")
            problems.append(
                f"{topic.name} has cleanup.policy={policy}: with changes: net it has to be compact, or rows are lost"
            )
        if topic.config and not self._net and topic.compacted:
            warnings.append(
                f"{topic.name} is compacted: of the history of a key only the last event stays (changes: net writes no more)"
            )
        if topic.replicas > 1 and topic.insync < 2:
            warnings.append(f"{topic.name} has min.insync.replicas=1: an event may be lost with one broker")
        elif topic.replicas == 1:
            warnings.append(f"{topic.name} has one replica: its events are lost with their broker")
        return problems, warnings

    def position(self) -> Position:
        with self._errors("reading the position"):
            return self._state_if_any(topics.described(self._cluster, self._position_topic)).position

    def _state_if_any(self, there: Mapping[str, topics.Topic]) -> State:
        return self._state() if self._position_topic in there else State()

    def _state(self) -> State:
        ledger = Ledger(self._cluster, self._position_topic, self.topic)
        try:
            return ledger.read()
        finally:
            ledger.close()

    def open(self, source: Source) -> Position:
        self.close()
        self._name = self._pipeline or source.pipeline
        try:
            with self._errors("opening the topic"):
                return self._opened(source)
        except BaseException:
            self.close()
            raise

    def _opened(self, source: Source) -> Position:
        there = self._sound(source)
        if self._position_topic not in there:
            topics.create(self._cluster, self._position_topic, topics.position_topic())
        for name in self._written_to:
            if name not in there and self._create is not None:
                topics.create(self._cluster, name, self._create)
        if not {self._position_topic, *self._written_to} <= there.keys():
            there = self._sound(source)  # the brokers' defaults may not do
        self._found = there[self.topic]
        self._runner = Runner(
            self._cluster,
            self._position_topic,
            self.topic,
            pipeline=self._name,
            source=source.table,
        )
        self._runner.refresh()  # one that slept until now must not shut out its successor
        self._shut_out(self._lanes)
        state = self._runner.refresh()
        if self._state_problems(state, self._found, source.key) or self._lane_problems(state, source.pipeline):
            raise TargetNotReady(f"{self.topic} was changed while it was opened", hint="nothing was written: run again")
        log.info("lease taken", extra={"target": self.topic, "epoch": self._runner.epoch, "position": state.version})
        return state.position

    def _sound(self, source: Source) -> Mapping[str, topics.Topic]:
        """The topics that are there, of which each can be written."""
        there = self._described()
        found = self._inspected(source, there)
        if found.problems:
            raise TargetNotReady(
                f"{self.topic} cannot be written: " + "; ".join(found.problems),
                hint="`deltarelay plan` shows this list without starting a run",
                problems=list(found.problems),
            )
        return there

    def _shut_out(self, lanes: int) -> None:
        """Whoever still writes for a runner before this one can commit nothing more, and what it left open is ended."""
        with ThreadPoolExecutor(lanes) as pool:
            list(pool.map(self._lane, range(lanes)))

    @property
    def _written_to(self) -> tuple[str, ...]:
        return (self.topic,) if self._dead_letter_topic is None else (self.topic, self._dead_letter_topic)

    def _lane(self, lane: int) -> OpenLane:
        assert self._found is not None
        opened = OpenLane(self._cluster, self.topic, lane, max_bytes=self._found.max_message_bytes)
        self._open[lane] = opened  # before it can fail: ``close`` ends it
        opened.producer.init()
        return opened

    def _close_lanes(self) -> None:
        lanes, self._open = self._open, {}
        for lane in lanes.values():
            lane.close()

    def close(self) -> None:
        self._close_lanes()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _held(self) -> Runner:
        if self._runner is None:
            raise PositionError("the sink is not open", hint="call open first")
        return self._runner

    # ── moved by hand ────────────────────────────────────────────────────────────────────────────────────────────

    def standing(self, *, most_records: int = 10) -> Standing:
        with self._errors("reading the position"):
            return self._state_if_any(self._described()).standing(most_records=most_records)

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        """As the contract says; from here on the topic has as many lanes as are set."""
        self.close()
        self._name = self._pipeline or source.pipeline
        try:
            with self._errors("moving the position"):
                self._move(source, before, to, action=action, reason=reason)
        finally:
            self.close()

    def _move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None) -> None:
        there = self._described()
        self._check_move(there, self._state_if_any(there), source, before, to)
        if self._position_topic not in there:
            topics.create(self._cluster, self._position_topic, topics.position_topic())
            there = self._described()
        runner = self._runner = Runner(
            self._cluster, self._position_topic, self.topic, pipeline=self._name, source=source.table
        )
        self._shut_out(max(self._lanes, runner.refresh().lanes or 0))
        state = runner.refresh()
        self._check_move(there, state, source, before, to)
        runner.move(self._moved(state, source, to), before=before.version, action=action, reason=reason)

    def _check_move(
        self, there: Mapping[str, topics.Topic], state: State, source: Source, before: Position, to: Position
    ) -> None:
        """Refuse what no run could go on from, or would write twice."""
        self._found = there.get(self.topic)
        if state.position != before:
            raise WindowOutOfOrder(
                f"{self.topic} moved on to another position in the meantime",
                hint="nothing was changed: look at `deltarelay position show`, and decide again",
                position=state.version,
            )
        problems = check_schema(source.schema, source.key, self._format)
        problems += filter(None, (topics.insync_problem(there[name]) for name in self._written_to if name in there))
        if self._position_topic in there:
            problems += topics.position_topic_problems(there[self._position_topic])
        ends = [] if self._found is None else [high for _, high in topics.offsets_of(self._cluster, self._found)]
        if self._found is None or not any(ends):
            problems.append(f"{self.topic} has no events that could be taken over: `deltarelay run` fills it")
        else:
            problems += self._state_problems(self._moved(state, source, to), self._found, source.key)
            problems += self._topic_problems(self._found)[0]
            newest = None if self._net or before.version is not None else self._newest(ends)
            if newest not in (None, to.version):
                problems.append(
                    f"the last event of {self.topic} is of version {newest}: take it over at that one. That the rows are "
                    "equal says nothing about the events in between"
                )
        if state.begun is not None:
            problems.append(f"{self.topic} has a part of a {state.begun.kind}: `deltarelay run` finishes it first")
        back = None not in (state.version, to.version) and (to.version or 0) < (state.version or 0)
        if back and not self._net:
            problems.append(f"{self.topic} holds a history: the events after version {to.version} would be there twice")
        if problems:
            raise TargetNotReady(
                f"the position of {self.topic} cannot be moved: " + "; ".join(problems),
                hint="nothing was changed",
                problems=problems,
            )

    def _newest(self, ends: Sequence[int]) -> int | None:
        try:
            return newest_version(self._cluster, self.topic, ends)
        except Exception as error:
            fault = from_task(error) or KafkaFault(type(error).__name__)
        raise fault

    def _moved(self, state: State, source: Source, to: Position) -> State:
        assert self._found is not None
        return replace(
            state,
            version=to.version,
            table_id=to.table_id,
            lanes=self._lanes,
            partitions=state.partitions or self._found.partitions,
            topic_id=state.topic_id or self._found.id,
            key=state.key or source.key,
        )

    # ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def image(self, source: Source) -> Iterator[KafkaImage]:
        with self._errors("reading the topic"):
            there = topics.described(self._cluster, self.topic, self._position_topic)
            state = self._state_if_any(there)
            if state.begun is not None:
                raise VerificationError(
                    f"{self.topic} has a part of version {state.begun.first} to {state.begun.last}: it equals no version",
                    hint="run finishes it",
                )
            ends = (
                [high for _, high in topics.offsets_of(self._cluster, there[self.topic])] if self.topic in there else []
            )
            now = self._state_if_any(there) if ends else state
            if (now.version, now.begun, now.done) != (state.version, state.begun, state.done):
                raise VerificationError(
                    f"{self.topic} moved on while the comparison began",
                    hint="run verify again, or stop the pipeline first",
                )
        image = KafkaImage(self._cluster, self.topic, ends, state.position, source, self._format)
        try:
            yield image
        finally:
            image.close()

    # ── erasing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def erasure(self) -> KafkaErasure:
        from connectors.kafka.erasure.sink_erasure import KafkaErasure

        # Former settings may have had a topic of rejected events
        written = tuple(dict.fromkeys((*self._written_to, f"{self.topic}.dead_letter")))
        return KafkaErasure(
            self._cluster,
            written,
            position_topic=self._position_topic,
            read_position=self.position,
            errors=self._errors,
        )

    # ── load, apply ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        runner = self._held()
        with self._errors("reading the position"):
            state = runner.refresh()
        if state.version is not None:
            raise WindowOutOfOrder(
                f"{self.topic} is filled already and stands at version {state.version}", hint="run goes on from there"
            )
        begun = Begun("load", snapshot.version, snapshot.version, self._form)
        self._check_begun(state, begun)
        if self._net and (violation := snapshot.key_violation()) is not None:
            raise violation
        events = self._columns(
            snapshot_to_envelope(
                snapshot.read(),
                key=snapshot.key,
                table=snapshot.table,
                table_id=snapshot.table_id,
                pipeline=self._name,
                version=snapshot.version,
                timestamp=snapshot.timestamp,
                format=self._format,
                lanes=self._lanes,
            )
        )
        _plan(events)
        return self._written(_Job(begun, snapshot, events), state)

    def apply(self, window: Window) -> Applied:
        runner = self._held()
        with self._errors("reading the position"):
            state = runner.refresh()
        if state.table_id is not None and window.table_id != state.table_id:
            raise TableReplaced(
                f"the window is of another table than the one {self.topic} was filled from",
                hint="take a new topic for it",
            )
        if state.version is not None and window.last <= state.version:
            return Applied(position=state.version, replayed=True)
        begun = Begun("window", window.first, window.last, self._form)
        self._check_begun(state, begun)
        stands = state.version
        if stands is None and self._net:
            raise WindowOutOfOrder(
                f"{self.topic} is empty", hint="load a snapshot first, then apply from the next version on"
            )
        if stands is not None and window.first != stands + 1:
            raise WindowOutOfOrder(
                f"a window from version {window.first} does not follow the position of {self.topic}, which is {stands}",
                hint="run goes on from the position",
                position=stands,
            )
        if not window.has_changes:
            window.confirm()
            with self._errors("moving the position"):
                runner.write(self._after(state, window.last, window))
            return Applied(position=window.last)
        # A key that came and went needs a tombstone where the topic may hold a record of it
        transients = window.filtered or any(
            one.from_version is not None and one.to_version < one.from_version and window.first <= one.from_version
            for one in state.moves
        )
        events = self._columns(
            to_envelope(
                window.net(transients=transients) if self._net else window.read(),
                key=window.key,
                table=window.table,
                table_id=window.table_id,
                pipeline=self._name,
                format=self._format,
                net=self._net,
                lanes=self._lanes,
                withheld=erasing_versions(window.commits),
            )
        )
        few = limited(events) if window.change_bytes <= self._small_window_bytes else None
        # What is wrong with the log already is told before the window counts as begun. Planned, the files are settled
        try:
            _plan(events if few is None else few)
        except Exception as error:
            raise window.failure(error) from error
        window.confirm()
        return self._written(_Job(begun, window, events, few), state)

    def _columns(self, events: DataFrame) -> DataFrame:
        """What ``Event`` takes, and the lane."""
        from pyspark.sql import functions as F

        follows = F.lit(self._format.envelope == "debezium")  # otherwise a tombstone is all that there is of a delete
        return events.select(
            "lane",
            "key",
            "value",
            (follows & (F.col("op") == TOMBSTONE)).alias("tombstone"),
            "change_type",
            "version",
            F.unix_micros("timestamp").alias("at"),
            "event_id",
            "again",
        )

    def _check_begun(self, state: State, wanted: Begun) -> None:
        begun = state.begun
        if begun is not None and begun != wanted:
            raise WindowOutOfOrder(
                f"{self.topic} has a part of a {begun.kind}, version {begun.first} to {begun.last}: that comes first",
                hint="run finishes it; its settings must be those it was begun with",
                position=state.version,
            )

    def _after(self, state: State, version: int, rows: Window | Snapshot) -> State:
        assert self._found is not None
        return replace(
            state,
            version=version,
            table_id=rows.table_id,
            lanes=self._lanes,
            partitions=self._found.partitions,
            topic_id=self._found.id,
            key=rows.key,
            begun=None,
        )

    def _written(self, job: _Job, state: State) -> Applied:
        runner = self._held()
        seconds: dict[str, float] = {}
        assert self._found is not None
        after = self._after(state, job.begun.last, job.rows)
        if state.begun is None:
            with self._errors("recording the window"), timed(seconds, "begin"):
                runner.write(replace(after, version=state.version, begun=job.begun))
        known, offset = runner.known()
        work = LaneWork(
            cluster=self._cluster,
            topic=self.topic,
            position_topic=self._position_topic,
            epoch=runner.epoch,
            first=job.begun.first,
            last=job.begun.last,
            table=job.rows.table,
            table_id=job.rows.table_id,
            pipeline=self._name,
            max_bytes=self._found.max_message_bytes,
            rejects=self._rejects,
            dead_letter_topic=self._dead_letter_topic,
            state=known,
            offset=offset,
        )
        with timed(seconds, "write"):
            done = self._by_tasks(job, work) if job.few is None else self._by_driver(job, job.few, work)
        with self._errors("moving the position"), timed(seconds, "commit"):
            runner.write(after)
        changes: Counter[str] = Counter()
        for lane in done:
            changes.update(lane.changes)
        if again := changes[AGAIN]:
            self._warn_of_keys(job, again)
        return Applied(
            position=job.begun.last,
            inserts=changes["insert"] + changes["snapshot"],
            updates=changes["update"] + changes["update_postimage"],
            deletes=changes["delete"],
            conflicts=Conflicts(within_window=again),
            rejected=sum(lane.rejected for lane in done),
            seconds=seconds,
        )

    def _warn_of_keys(self, job: _Job, again: int) -> None:
        """Once for each sink: where the columns do not identify a row, every window has such changes."""
        if not self._warned:
            log.warning(
                "the source holds keys more than once: the last event of such a key is not all of its rows",
                extra={
                    "target": self.topic,
                    "table": job.rows.table,
                    "key": ", ".join(job.rows.key),
                    "first_version": job.begun.first,
                    "last_version": job.begun.last,
                    "changes": again,
                },
            )
        self._warned = True

    def _by_tasks(self, job: _Job, work: LaneWork) -> Sequence[LaneDone]:
        """A task for each lane. Producers of this process are shut out by those of the tasks."""
        self._close_lanes()

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            first = next(batches, None)
            if first is None or first.num_rows == 0:
                return
            lane = first.column("lane")[0].as_py()
            done = write_lane(work, lane, events_of(chain([first], batches)))
            yield pa.RecordBatch.from_pydict({"rejected": [done.rejected], "changes": [json.dumps(dict(done.changes))]})

        try:
            planned = job.events.mapInArrow(write, _DONE)
            # A DataFrame made of another is planned by itself, and lists the log anew
            _plan(planned)
            job.confirm()
            rows = planned.collect()
        except CdfError:
            raise
        except Exception as error:
            failure = self._task_failure(error, job)
        else:
            return [
                LaneDone(job.begun.first, job.begun.last, 0, whole=True, rejected=row[0], changes=json.loads(row[1]))
                for row in rows
            ]
        raise failure

    def _by_driver(self, job: _Job, few: DataFrame, work: LaneWork) -> Sequence[LaneDone]:
        try:
            table = collect_few(few)
        except Exception as error:
            raise self._task_failure(error, job) from error
        if table is None:
            return self._by_tasks(job, work)
        import pyarrow.compute as pc

        lanes = pc.unique(table.column("lane")).to_pylist()

        def write(lane: int) -> LaneDone:
            part = table.filter(pc.equal(table.column("lane"), lane))
            try:
                opened = self._open.get(lane) or self._lane(lane)
                return write_lane(work, lane, events_of(part.to_batches()), kept=opened)
            except BaseException:
                if (failed := self._open.pop(lane, None)) is not None:
                    failed.close()  # of no use any more
                raise

        failure: CdfError | None = None
        with ThreadPoolExecutor(max(1, len(lanes))) as pool:
            running = [pool.submit(write, lane) for lane in lanes]
            done = []
            for one in running:
                try:
                    done.append(one.result())
                except KafkaFault as fault:
                    failure = failure or self._failure(fault, job)
        if failure is not None:
            raise failure
        return done

    def _task_failure(self, error: Exception, job: _Job) -> CdfError:
        fault = from_task(error)
        if fault is not None:
            return self._failure(fault, job)
        return rejection_of(error, table=job.rows.table) or job.rows.failure(error)

    def _failure(self, fault: KafkaFault, job: _Job) -> CdfError:
        if fault.name.startswith(TOO_LARGE):
            version = fault.name.removeprefix(f"{TOO_LARGE}_")
            assert self._found is not None
            return RowRejected(
                f"version {version} of {job.rows.table} has an event that is larger than {self.topic} takes "
                f"(max.message.bytes={self._found.max_message_bytes})",
                hint="raise max.message.bytes of the topic; rejects: dead_letter sets such events aside",
                condition="MSG_SIZE_TOO_LARGE",
                table=job.rows.table,
                version=int(version),
            )
        if fault.name == RUNNER_FENCED or is_fenced(fault):
            return fenced(self.topic)
        if fault.name == PARTITIONS_CHANGED:
            return TargetNotReady(
                f"{self.topic} has other partitions than when it was opened: later changes of a key would not be where its "
                "earlier ones are",
                hint="take a new topic",
            )
        if fault.name == LANE_FENCED:
            return SinkUnavailable(
                f"several attempts were at work on one lane of {self.topic}, and none came to its end",
                hint="nothing is doubled: run again",
            )
        return in_words(fault, "writing events")

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
            return
        except KafkaFault as fault:
            failure = in_words(fault, doing)
        raise failure


_DONE = "rejected long, changes string"


def _plan(events: DataFrame) -> None:
    events._jdf.queryExecution().executedPlan()

"""Writes a window or a snapshot: few events together with the position, others in lanes.

With lanes, the window's bounds are recorded first, then every lane is written, and then the position. After a failure, the
recorded bounds make the next runner write exactly this window; lanes that are complete write nothing.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.changes.few_rows import DRIVER_BYTES
from cdf.errors import TableReplaced, WindowOutOfOrder
from cdf.sink import Applied, Conflicts
from cdf.sink.guard import erasing_versions
from cdf.source.direct_reader import ManyRows, read_directly
from cdf.timing import timed
from connectors.kafka.errors import translate_faults
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import LaneProgress, PendingWindow, State
from connectors.kafka.target import KafkaTarget
from connectors.kafka.topics import Topic
from connectors.kafka.write.event_builder import EventBuilder, EventRows
from connectors.kafka.write.lane_producers import LaneProducers
from connectors.kafka.write.record_producer import AGAIN, LaneWork
from connectors.kafka.write.strategies import (
    EventBatch,
    collect_images,
    read_images,
    write_at_once,
    write_by_driver,
    write_by_tasks,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.changes.window import Snapshot, Window
    from cdf.source.direct_reader import DirectWindow

__all__ = ["DuplicateKeyWarning", "WindowWriter"]

log = logging.getLogger("deltarelay.kafka")

_VALUE_BYTES = 45
"""Of a value of fixed size as JSON, with quotation marks and a comma: a number of 38 digits is the longest."""
_ESCAPED = 6
"""A character may become an escape sequence of this length."""
TRANSACTION_BYTES = 4 * 1024 * 1024
"""Events of this size at most, with their headers, are written in one transaction, whose time limit is short: see
``lease.RUNNER_SECONDS``."""


def _estimate_json_bytes(window: DirectWindow) -> int:
    """At most so many bytes have the rows as JSON: names and punctuation in every row, and characters that are escaped."""
    rows = window.rows()
    row_bytes = sum(len(json.dumps(name)) + _VALUE_BYTES for name in window.schema.fieldNames())
    return int(rows.num_rows * row_bytes + _ESCAPED * rows.nbytes)


class DuplicateKeyWarning:
    """Logged once for a sink: if the key columns do not identify a row, every window has such changes."""

    def __init__(self) -> None:
        self._is_logged = False

    def log_once(self, topic: str, batch: EventBatch, changes: int) -> None:
        if not self._is_logged:
            log.warning(
                "the source holds keys more than once: the last event of such a key does not show all of its rows",
                extra={
                    "target": topic,
                    "table": batch.rows.table,
                    "key": ", ".join(batch.rows.key),
                    "first_version": batch.pending.first,
                    "last_version": batch.pending.last,
                    "changes": changes,
                },
            )
        self._is_logged = True


class WindowWriter:
    """Writes for one lease. ``topic``: the events' topic as it was when the sink was opened."""

    def __init__(
        self,
        target: KafkaTarget,
        lease: Lease,
        topic: Topic,
        producers: LaneProducers,
        *,
        pipeline: str,
        small_window_bytes: int,
        key_warning: DuplicateKeyWarning,
    ) -> None:
        self._target = target
        self._lease = lease
        self._topic = topic
        self._producers = producers
        self._pipeline = pipeline
        self._small_window_bytes = small_window_bytes
        self._key_warning = key_warning

    def load(self, snapshot: Snapshot) -> Applied:
        state = self._read_state()
        if state.version is not None:
            raise WindowOutOfOrder(
                f"{self._target.topic} is already loaded and is at version {state.version}",
                hint="`deltarelay run` continues from there",
            )
        pending = PendingWindow("load", snapshot.version, snapshot.version, self._target.form)
        self._check_pending(state, pending)
        if self._target.is_net and (violation := snapshot.key_violation()) is not None:
            raise violation
        builder = self._create_builder(snapshot, snapshot.read())
        rows = builder.build_snapshot(snapshot.version, snapshot.timestamp)
        batch = EventBatch(pending, snapshot, rows.images, rows.assembler)
        return self._write(read_images(batch, is_small=False), state)

    def apply(self, window: Window) -> Applied:
        state = self._read_state()
        if state.table_id is not None and window.table_id != state.table_id:
            raise TableReplaced(
                f"the window is of another table than the one from which {self._target.topic} was loaded",
                hint="use a new topic for it",
            )
        if state.version is not None and window.last <= state.version:
            return Applied(position=state.version, replayed=True)
        pending = PendingWindow("window", window.first, window.last, self._target.form)
        self._check_pending(state, pending)
        if state.version is None and self._target.is_net:
            raise WindowOutOfOrder(
                f"{self._target.topic} is empty", hint="load a snapshot first, then apply from the next version on"
            )
        if state.version is not None and window.first != state.version + 1:
            raise WindowOutOfOrder(
                f"a window from version {window.first} does not follow the position of {self._target.topic}, which is "
                f"{state.version}",
                hint="`deltarelay run` continues from the position",
                position=state.version,
            )
        if not window.has_changes:
            window.confirm()
            with translate_faults("moving the position"):
                self._lease.write_position(self._build_state_after(state, window.last, window))
            return Applied(position=window.last)
        seconds: dict[str, float] = {}
        with timed(seconds, "read"):
            batch = self._read_window(window, pending, state)
        return self._write(batch, state, seconds)

    def _read_state(self) -> State:
        with translate_faults("reading the position"):
            return self._lease.refresh()

    def _check_pending(self, state: State, wanted: PendingWindow) -> None:
        pending = state.pending
        if pending is not None and pending != wanted:
            raise WindowOutOfOrder(
                f"{self._target.topic} has a partly written {pending.kind}, version {pending.first} to {pending.last}, "
                "which must be finished first",
                hint="`deltarelay run` finishes it, with the settings with which it was started",
                position=state.version,
            )

    def _read_window(self, window: Window, pending: PendingWindow, state: State) -> EventBatch:
        is_small = window.change_bytes <= self._small_window_bytes
        in_memory = None
        if is_small:
            with suppress(ManyRows):  # Spark may still collect the events: an update is two rows but one event
                in_memory = read_directly(window, times=True)
        if in_memory is not None and _estimate_json_bytes(in_memory) <= DRIVER_BYTES:
            rows = self._build_rows(in_memory, state)
            return collect_images(EventBatch(pending, window, rows.unsorted, rows.assembler), rows)
        rows = self._build_rows(window, state)
        return read_images(EventBatch(pending, window, rows.images, rows.assembler), is_small=is_small)

    def _build_rows(self, window: Window, state: State) -> EventRows:
        # A key that was inserted and deleted within the window needs a tombstone if the topic may have a record of it
        transients = window.filtered or any(
            move.from_version is not None and move.to_version < move.from_version and window.first <= move.from_version
            for move in state.moves
        )
        if self._target.is_net:
            return self._create_builder(window, window.net(transients=transients)).build_net()
        return self._create_builder(window, window.read()).build_changes(erasing_versions(window.commits))

    def _create_builder(self, source: Window | Snapshot, rows: DataFrame) -> EventBuilder:
        target = self._target
        return EventBuilder(
            rows, source.key, source.table, source.table_id, self._pipeline, target.format, target.lanes
        )

    def _build_state_after(self, state: State, version: int, rows: Window | Snapshot) -> State:
        return replace(
            state,
            version=version,
            table_id=rows.table_id,
            lanes=self._target.lanes,
            partitions=self._topic.partitions,
            topic_id=self._topic.id,
            key=rows.key,
            pending=None,
        )

    def _write(self, batch: EventBatch, state: State, seconds: dict[str, float] | None = None) -> Applied:
        seconds = {} if seconds is None else seconds
        after = self._build_state_after(state, batch.pending.last, batch.rows)
        few = batch.few
        # An aborted transaction leaves records in the topic: without a position nothing would show whose they are
        is_new = state.version is None
        # Lanes of a pending window may have been written already
        if state.pending is None and not is_new and few is not None and batch.measure_records() <= TRANSACTION_BYTES:
            with timed(seconds, "write"):
                written = write_at_once(batch, few, self._build_work(batch), self._lease, after)
        else:
            written = self._write_lanes(batch, state, after, seconds)
        changes: Counter[str] = Counter()
        for lane in written:
            changes.update(lane.changes)
        if again := changes[AGAIN]:
            self._key_warning.log_once(self._target.topic, batch, again)
        return Applied(
            position=batch.pending.last,
            inserts=changes["insert"] + changes["snapshot"],
            updates=changes["update"] + changes["update_postimage"],
            deletes=changes["delete"],
            conflicts=Conflicts(within_window=again),
            rejected=sum(lane.rejected for lane in written),
            seconds=seconds,
        )

    def _write_lanes(
        self, batch: EventBatch, state: State, after: State, seconds: dict[str, float]
    ) -> Sequence[LaneProgress]:
        if state.pending is None:
            with translate_faults("recording the window"), timed(seconds, "begin"):
                self._lease.write_position(replace(after, version=state.version, pending=batch.pending))
        work = self._build_work(batch)
        with timed(seconds, "write"):
            written = (
                write_by_tasks(batch, work, self._producers)
                if batch.few is None
                else write_by_driver(batch, batch.few, work, self._producers)
            )
        with translate_faults("moving the position"), timed(seconds, "commit"):
            self._lease.write_position(after)
        return written

    def _build_work(self, batch: EventBatch) -> LaneWork:
        known, offset = self._lease.get_known_state()
        return LaneWork(
            cluster=self._target.cluster,
            topic=self._target.topic,
            position_topic=self._target.position_topic,
            epoch=self._lease.epoch,
            first=batch.pending.first,
            last=batch.pending.last,
            table=batch.rows.table,
            table_id=batch.rows.table_id,
            pipeline=self._pipeline,
            max_bytes=self._topic.max_message_bytes,
            rejects=self._target.rejects,
            dead_letter_topic=self._target.dead_letter_topic,
            state=known,
            offset=offset,
        )

"""The ways in which events are written: in one transaction; or in lanes, each by a Spark task or a thread of the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from cdf.changes.few_rows import collect_few, limited
from cdf.changes.window import Snapshot, Window
from cdf.errors import CdfError, RowRejected, SinkError, SinkUnavailable, TargetNotReady
from cdf.session import is_connect
from connectors.kafka.client import wrap_client_errors
from connectors.kafka.errors import KafkaFault, build_fenced_error, find_task_fault, is_fenced, to_cdf_error
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import LaneProgress, PendingWindow, State
from connectors.kafka.types import find_rejection
from connectors.kafka.write.event_assembler import EventAssembler
from connectors.kafka.write.lane_producers import LaneProducers
from connectors.kafka.write.lane_writer import LANE_FENCED, RUNNER_FENCED, write_lane
from connectors.kafka.write.record_producer import (
    PARTITIONS_CHANGED,
    TOO_LARGE,
    LaneWork,
    RecordProducer,
    check_topic,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from connectors.kafka.client import TransactionalProducer
    from connectors.kafka.write.event_builder import EventRows

__all__ = ["EventBatch", "collect_images", "read_images", "write_at_once", "write_by_driver", "write_by_tasks"]

SEVERAL_LANES = "SEVERAL_LANES_IN_ONE_TASK"
HEADERS_BYTES = 400
"""About the size of a record's headers."""
_WRITTEN = "rejected long, changes string"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """A window or a snapshot as the images of its rows, and what builds events of them."""

    pending: PendingWindow
    rows: Window | Snapshot
    images: DataFrame
    assembler: EventAssembler
    few: pa.Table | None = None
    """The images of a small window, for the driver."""

    def measure_records(self) -> int:
        """About how many bytes the records of the few images have, before compression."""
        few = self.few
        return 0 if few is None else int(few.nbytes) + (HEADERS_BYTES + self.assembler.constant_bytes) * few.num_rows

    def confirm(self) -> None:
        if isinstance(self.rows, Window):
            self.rows.confirm()


def read_images(batch: EventBatch, *, is_small: bool) -> EventBatch:
    """Find faults of the source before the window is recorded as pending; images that are few are read.

    A window's images are complete afterwards, or cannot be read any more.
    """
    rows, images = batch.rows, batch.images
    try:
        few = collect_few(limited(images)) if is_small else None
        if few is None and not is_connect(images.sparkSession):
            _plan(images)
        elif few is None and isinstance(rows, Window):
            # A query over Spark Connect is planned when it runs, and a task's events are durable before their end is
            # known. So they are stored on the executors first; without lineage, a lost part is not read again
            images = images.localCheckpoint()
        elif few is None:
            rows.read().isEmpty()
    except Exception as error:
        raise _to_read_error(error, batch) from error
    batch = replace(batch, images=images, few=few)
    batch.confirm()
    return batch


def collect_images(batch: EventBatch, rows: EventRows) -> EventBatch:
    """``read_images`` for rows that are in memory."""
    try:
        few = rows.collect_images()
    except Exception as error:
        raise _to_read_error(error, batch) from error
    batch.confirm()
    return replace(batch, few=few)


def _plan(rows: DataFrame) -> None:
    """Make Spark plan the query, which lists the source's files."""
    rows._jdf.queryExecution().executedPlan()


def write_at_once(
    batch: EventBatch, table: pa.Table, work: LaneWork, lease: Lease, after: State
) -> Sequence[LaneProgress]:
    """Write the events together with the position ``after`` them: a transaction of the runner, whose successor fences it.

    Nothing has to be recorded before it: if it fails, nothing of the window is in the topic.
    """
    written: list[tuple[RecordProducer, int]] = []

    def write_events(producer: TransactionalProducer) -> None:
        check_topic(work, producer, after.partitions)
        records = RecordProducer(work, producer)
        with wrap_client_errors():
            number = records.produce(batch.assembler.assemble(table.to_batches()))
        written.append((records, number))

    try:
        lease.write_window(after, write_events)
    except KafkaFault as fault:
        failure = _to_write_error(fault, batch, work)
    else:
        ((records, number),) = written
        first, last = batch.pending.first, batch.pending.last
        return [LaneProgress(first, last, number, True, records.rejected, dict(records.changes))]
    raise failure


def write_by_tasks(batch: EventBatch, work: LaneWork, producers: LaneProducers) -> Sequence[LaneProgress]:
    """Write each lane in a task. The driver's producers are closed, because those of the tasks fence them."""
    producers.close()
    assembler = batch.assembler

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first = next(batches, None)
        if first is None or first.num_rows == 0:
            return
        lane = first.column("lane")[0].as_py()
        written = write_lane(work, lane, assembler.assemble(_check_lane(chain([first], batches), lane)))
        yield pa.RecordBatch.from_pydict(
            {"rejected": [written.rejected], "changes": [json.dumps(dict(written.changes))]}
        )

    try:
        planned = batch.images.mapInArrow(write, _WRITTEN)
        if not is_connect(planned.sparkSession):
            # Spark plans a derived DataFrame separately, and lists the Delta log again
            _plan(planned)
            batch.confirm()
        rows = planned.collect()
    except CdfError:
        raise
    except Exception as error:
        failure = _to_task_error(error, batch, work)
    else:
        first, last = batch.pending.first, batch.pending.last
        return [LaneProgress(first, last, 0, whole=True, rejected=row[0], changes=json.loads(row[1])) for row in rows]
    raise failure


def _check_lane(batches: Iterable[pa.RecordBatch], lane: int) -> Iterator[pa.RecordBatch]:
    """The batches of a task; refuses those with another lane, whose own task would take its events for written."""
    import pyarrow.compute as pc

    for batch in batches:
        if pc.any(pc.not_equal(batch.column("lane"), lane)).as_py():
            raise KafkaFault(SEVERAL_LANES)
        yield batch


def write_by_driver(
    batch: EventBatch, table: pa.Table, work: LaneWork, producers: LaneProducers
) -> Sequence[LaneProgress]:
    """Write each lane of the events in a thread."""
    import pyarrow.compute as pc

    lanes = pc.unique(table.column("lane")).to_pylist()

    def write(lane: int) -> LaneProgress:
        part = table.filter(pc.equal(table.column("lane"), lane))
        try:
            return write_lane(work, lane, batch.assembler.assemble(part.to_batches()), open_lane=producers.get(lane))
        except BaseException:
            producers.discard(lane)
            raise

    failure: CdfError | None = None
    written = []
    with ThreadPoolExecutor(max(1, len(lanes))) as pool:
        for future in [pool.submit(write, lane) for lane in lanes]:
            try:
                written.append(future.result())
            except KafkaFault as fault:
                failure = failure or _to_write_error(fault, batch, work)
    if failure is not None:
        raise failure
    return written


def _to_task_error(error: Exception, batch: EventBatch, work: LaneWork) -> CdfError:
    fault = find_task_fault(error)
    if fault is not None:
        return _to_write_error(fault, batch, work)
    return _to_read_error(error, batch)


def _to_read_error(error: Exception, batch: EventBatch) -> CdfError:
    return find_rejection(error, table=batch.rows.table) or batch.rows.failure(error)


def _to_write_error(fault: KafkaFault, batch: EventBatch, work: LaneWork) -> CdfError:
    if fault.name.startswith(TOO_LARGE):
        version = fault.name.removeprefix(f"{TOO_LARGE}_")
        return RowRejected(
            f"version {version} of {batch.rows.table} has an event that is larger than {work.topic} accepts "
            f"(max.message.bytes={work.max_bytes})",
            hint="raise max.message.bytes of the topic, or set rejects: dead_letter to record such events in another topic",
            condition="MSG_SIZE_TOO_LARGE",
            table=batch.rows.table,
            version=int(version),
        )
    if fault.name == RUNNER_FENCED or is_fenced(fault):
        return build_fenced_error(work.topic)
    if fault.name == PARTITIONS_CHANGED:
        return TargetNotReady(
            f"the number of partitions of {work.topic} has changed since it was opened: later changes of a key would go to "
            "another partition than its earlier ones",
            hint="use a new topic",
        )
    if fault.name == SEVERAL_LANES:
        return SinkError(
            f"Spark gave events of several lanes of {work.topic} to one task: the window was not finished",
            hint="turn off extensions of this Spark that change how rows are distributed over tasks",
            condition=fault.name,
        )
    if fault.name == LANE_FENCED:
        return SinkUnavailable(
            f"several attempts wrote one lane of {work.topic} at the same time, and none of them finished",
            hint="no event was written twice: run again",
        )
    return to_cdf_error(fault, "writing events")

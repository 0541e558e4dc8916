"""From the images of rows to events: pairs the images of an update, and builds keys, values and ids as bytes.

One pass in Python over rows that Spark has sorted: faster than window functions and expressions in Spark, which copy the
text of each image several times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from cdf.changes.columns import DELETE, INSERT, UPDATE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from connectors.kafka.write.record_producer import Event, EventFields

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ADDED", "AFTER", "BEFORE", "EVENT_COLUMNS", "REMOVED", "EventAssembler", "Images"]

Images = Literal["changes", "net", "snapshot"]
"""What the images are: all rows of the feed, those of a net effect, or the rows of a table."""

# The order of the changes of one key in one version. Preimages and postimages must be neighbours.
REMOVED, BEFORE, AFTER, ADDED = range(4)

_SNAPSHOT = "snapshot"
_NET = {ADDED: INSERT, AFTER: UPDATE, REMOVED: DELETE}
_OPS = {INSERT: "c", UPDATE_POSTIMAGE: "c", UPDATE: "u", DELETE: "d", UPDATE_PREIMAGE: "d", _SNAPSHOT: "r"}
_TOMBSTONE = "t"

EVENT_COLUMNS = (
    "lane int, key binary, value binary, op string, version long, at long, "
    "change_type string, again int, event_id string"
)
_BATCH_EVENTS = 2_000


# Plain tuples, because naming their fields takes time. An image: key, image, side, version, microseconds since 1970, again
_Row = tuple[bytes, bytes | None, int, int, int | None, int]
_ROW_FIELDS = ("key", "image", "side", "version", "at", "again")
# Change type, key, version, microseconds since 1970, image before, image after, again
_Change = tuple[str, bytes, int, int | None, bytes | None, bytes | None, int]


@dataclass(frozen=True, slots=True)
class EventAssembler:
    """Pickled to the tasks. ``source``: the beginning of Debezium's source block, as JSON; None: values are rows."""

    images: Images
    table_id: str
    source: bytes | None
    key_head: bytes
    """Comes before each key, with ``tail`` after it: Connect's schema, if the format has one."""
    value_head: bytes
    tail: bytes
    withheld: frozenset[int]
    """Versions whose events have no ``before``."""

    @property
    def constant_bytes(self) -> int:
        """About how many bytes a record has besides its images."""
        return len(self.key_head) + len(self.value_head) + len(self.source or b"") + 100

    def assemble(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EventFields]:
        """``batches``: images in the order of ``EventBuilder``. The rows of one lane, or of one lane after the other."""
        is_debezium, key_head, tail = self.source is not None, self.key_head, self.tail
        parts: dict[tuple[str, int, int | None], _Parts] = {}
        for change_type, key, version, at, before, after, again in self._read_changes(batches):
            found = parts.get((change_type, version, at))
            if found is None:
                if len(parts) > 100:
                    parts.clear()
                found = parts[change_type, version, at] = self._build_parts(change_type, version, at)
            digest, value_head, value_tail, tombstone_digest = found
            if key_head:
                key = key_head + key + tail
            if is_debezium:
                value = b'%b{"before":%b,"after":%b%b' % (value_head, before or b"null", after or b"null", value_tail)
            else:
                value = b"%b%b%b" % (value_head, after, value_tail) if after is not None else b""
            if is_debezium or tombstone_digest is None:
                id = digest.copy()
                id.update(b"%b\n%b" % (key, value))
                yield key, value, False, change_type, version, at, id.hexdigest(), again
            if tombstone_digest is not None:
                id = tombstone_digest.copy()
                id.update(b"%b\n" % key)
                # Without Debezium's envelope, the tombstone is the only event of a delete
                yield key, None, is_debezium, change_type, version, at, id.hexdigest(), again

    def assemble_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The events of a task in the columns of ``EVENT_COLUMNS``."""
        import pyarrow as pa

        types = [
            pa.int32(),
            pa.binary(),
            pa.binary(),
            pa.string(),
            pa.int64(),
            pa.int64(),
            pa.string(),
            pa.int32(),
            pa.string(),
        ]
        names = [column.split()[0] for column in EVENT_COLUMNS.split(", ")]
        schema = pa.schema(list(zip(names, types, strict=True)))
        lanes: set[int] = set()

        def note_lane() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                lanes.update(batch.column("lane").unique().to_pylist())
                if len(lanes) > 1:
                    raise AssertionError(f"one task has rows of the lanes {sorted(lanes)}")
                yield batch

        events = self.assemble(note_lane())
        while some := list(islice(events, _BATCH_EVENTS)):
            (lane,) = lanes
            rows = (
                (
                    lane,
                    one.key,
                    one.value,
                    _get_op(one),
                    one.version,
                    one.at,
                    one.change_type,
                    one.again,
                    one.event_id,
                )
                for one in map(Event._make, some)
            )
            arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_changes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Change]:
        rows = _read_rows(batches)
        if self.images == "changes":
            return self._pair_images(rows)
        return _read_snapshot(rows) if self.images == _SNAPSHOT else _read_net(rows)

    def _pair_images(self, rows: Iterator[_Row]) -> Iterator[_Change]:
        """Pair neighbours. A remove is held until the row after it is known."""
        withheld = self.withheld

        def remove(row: _Row, again: bool) -> _Change:
            key, image, side, version, at, _ = row
            change_type = UPDATE_PREIMAGE if side == BEFORE else DELETE
            return change_type, key, version, at, None if version in withheld else image, None, int(again)

        held: _Row | None = None
        is_put = False
        last_key, last_version = b"", -1
        for row in rows:
            key, image, side, version, at, _ = row
            is_same = key == last_key and version == last_version
            last_key, last_version = key, version
            if side < AFTER:
                if held is not None:
                    yield remove(held, is_same)
                held, is_put = row, False
                continue
            if held is not None and is_same and side == AFTER and held[2] == BEFORE:
                before = None if version in withheld else held[1]
                yield UPDATE, key, version, at, before, image, 0
            else:
                if held is not None:
                    yield remove(held, False)
                change_type = UPDATE_POSTIMAGE if side == AFTER else INSERT
                yield change_type, key, version, at, None, image, int(is_same and is_put)
            held, is_put = None, True
        if held is not None:
            yield remove(held, False)

    def _build_parts(self, change_type: str, version: int, at: int | None) -> _Parts:
        op = _OPS[change_type]
        has_tombstone = op == "d"
        tombstone = self._start_digest(version, _TOMBSTONE) if has_tombstone else None
        if self.source is None:
            return _Parts(self._start_digest(version, op), self.value_head, self.tail, tombstone)
        time = b"null" if at is None else b"%d" % (at // 1000)
        end = b'%b,"ts_ms":%b,"commit_version":%d},"op":"%b","ts_ms":%b}%b'
        value_tail = end % (self.source, time, version, op.encode(), time, self.tail)
        return _Parts(self._start_digest(version, op), self.value_head, value_tail, tombstone)

    def _start_digest(self, version: int, op: str) -> hashlib._Hash:
        return hashlib.md5(f"{self.table_id}\n{version}\n{op}\n".encode(), usedforsecurity=False)


class _Parts(NamedTuple):
    """What all events of one change type in one version share."""

    digest: hashlib._Hash
    value_head: bytes
    value_tail: bytes
    tombstone_digest: hashlib._Hash | None


def _read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _ROW_FIELDS)
        yield from cast("Iterator[_Row]", zip(*columns, strict=True))


def _read_net(rows: Iterator[_Row]) -> Iterator[_Change]:
    for key, image, side, version, at, again in rows:
        yield _NET[side], key, version, at, None, None if side == REMOVED else image, again


def _read_snapshot(rows: Iterator[_Row]) -> Iterator[_Change]:
    last: bytes | None = None
    for key, image, _, version, at, _ in rows:
        yield _SNAPSHOT, key, version, at, None, image, int(key == last)
        last = key


def _get_op(event: Event) -> str:
    return _TOMBSTONE if event.value is None else _OPS[event.change_type]

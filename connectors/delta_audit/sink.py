"""An append-only trail of every change, in Delta tables of its own, whose hashes prove that it is whole.

    rows of the feed ─▶ payload ─▶ events ─▶ ledger ─▶ position

Three durable steps, each one commit of Delta, each skipped where a runner before has made it. The ledger comes last and is
the position: a window without records is pending, and is taken up with exactly its bounds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from audit.anchors.base import parse_note
from audit.audit_trail import Trail
from audit.encryption.decrypt import has_groups
from audit.erasure.scan.files import LocalFiles
from audit.errors import ForkedTrail, find_named_file
from audit.hashing.value_encoding import find_unsupported_fields
from audit.proof import ProofError
from audit.reencryption.plaintext_rows import PlaintextRows, count_plaintext_rows
from audit.reencryption.reencrypt import Reencryption
from audit.trail.column_history import GROUPS, SEALED, extend_columns, find_unwritable_fields, row_type
from audit.trail.events import CommitRoots, build_event_rows, build_events, compute_commit_roots, compute_roots
from audit.trail.lease import Lease
from audit.trail.ledger import append_notes, append_records, describe_commits
from audit.trail.ledger_state import State, read_record_of_version, read_state
from audit.trail.ledger_state import delete_unrecorded_payload as clear_rest
from audit.trail.position import read_columns, read_position
from audit.trail.tables import EVENTS, PAYLOAD, STORED_EVENT, TrailTables, payload_schema
from audit.writing.encrypted_folder import remove_folders
from audit.writing.payload import PayloadRows
from audit.writing.recovery import has_encrypted_rows, matches_source
from audit.writing.removal import finish_removal, remove_encrypted, remove_values
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, INSERT
from cdf.changes.schema_diff import ChangeKind
from cdf.changes.window import Commit
from cdf.errors import (
    CdfError,
    ConfigError,
    PositionError,
    SinkError,
    TableReplaced,
    TargetNotReady,
    VersionsExpired,
    WindowOutOfOrder,
    condition_of,
)
from cdf.sink.contract import Applied, Bounds, Capabilities, Inspection, Position, Source
from cdf.sink.guard import erasing_versions
from cdf.source.single_writer import require_writer
from cdf.timing import timed
from connectors.delta_audit.access_log import note_readings
from connectors.delta_audit.erasure.erase import forget, held_open, kept_values, note, purge, scan
from connectors.delta_audit.person_history import past
from connectors.delta_audit.verify import TrailImage

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from audit.anchors.base import NamedAnchor
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import KeyState, Registry, States
    from audit.erasure.scan.files import Files
    from audit.erasure.scan.search_terms import Needles
    from audit.erasure.sink_contract import Erasing, Purged, Reached, Scanned, SealedFor
    from audit.proof import VerifierKey
    from audit.signing.signer import Signer
    from audit.trail.column_history import Column
    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from cdf.source.table import ChangeFeed

__all__ = ["DeltaAuditSink"]

log = logging.getLogger("deltarelay.audit")

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most so many bytes of change files are made on the driver: no Python workers, nothing read back."""
SEAL_SECONDS = 60.0
"""A runner that goes on for longer signs what it has written once in so many seconds, and at its end."""
_BYTES_PER_PARTITION = 32 * 1024 * 1024
_MOST_PARTITIONS = 200


@dataclass(frozen=True, slots=True)
class _Job:
    """A window or a snapshot, as it is written."""

    bounds: Bounds
    baseline: bool
    table_id: str
    rows: Window | Snapshot
    commits: Sequence[Commit]


class DeltaAuditSink:
    """The sink. ``path``: the folder of this trail; its tables stand below it."""

    def __init__(
        self,
        path: str,
        *,
        spark: SparkSession | None = None,
        signer: Signer | None = None,
        keys: Sequence[VerifierKey] = (),
        anchors: Sequence[NamedAnchor] = (),
        small_window_bytes: int = SMALL_WINDOW_BYTES,
        storage_options: Callable[[], Mapping[str, str] | None] = lambda: None,
        files: Callable[[str], Files] = LocalFiles,
        sealing: ColumnEncryption | None = None,
        registry: Callable[[], Registry] | None = None,
    ) -> None:
        """``storage_options``: those of delta-rs for the ledger, which tells the position without Spark. ``files``: what is
        below an address, for ``scan``. ``sealing``: the columns of people that are written under a key of their own.
        ``registry``: of keys, also where no columns are named any more: a window may have been written sealed."""
        self._sealing = sealing
        self._registry = registry if sealing is None else sealing.registry
        self._files = files
        self.path = path.rstrip("/")
        self._storage_options = storage_options
        self._session = spark
        self._signer, self._keys, self._anchors = signer, keys, anchors
        self._small_window_bytes = small_window_bytes
        self._tables: TrailTables | None = None
        self._lease: Lease | None = None
        self._state: State | None = None
        self._row: StructType | None = None
        """The payload's row, as of ``_state``."""
        self._pin: tuple[int, str | None] | None = None
        """Of the last version that the ledger has: what it says of the source's commit file."""
        self._unsealed = False
        self._sealed_at = float("-inf")

    @property
    def _spark(self) -> SparkSession:
        """The session at work: a trail is written by the one that reads the source."""
        from pyspark.sql import SparkSession

        if not self._has_spark():
            raise ConfigError("a trail needs a Spark session", hint="hand one to the sink, or make one first")
        # Another thread's session counts as well: it is one and the same here
        return self._session or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()

    def _has_spark(self) -> bool:
        from pyspark import SparkContext

        return self._session is not None or SparkContext._active_spark_context is not None

    @property
    def trail(self) -> Trail:
        """For those who ask, sign and verify; needs no ``open``."""
        return Trail(
            self._spark,
            self.path,
            signer=self._signer,
            keys=self._keys,
            anchors=self._anchors,
            sealing=self._sealing,
        )

    def __repr__(self) -> str:
        return f"DeltaAuditSink({self.path!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="history",
            transactional=False,
            counts_conflicts=False,
            schema_changes=frozenset(kind.value for kind in ChangeKind),
        )

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        from pyspark.sql.types import StructType

        after = change.after
        if after is not None and find_unsupported_fields(StructType([after])):
            return "its type has no canonical form that could be hashed"
        if after is not None and find_unwritable_fields(StructType([after])):
            return "a field in it has a name that files cannot have without column mapping, which a trail has not"
        if (
            change.before is not None
            and change.before.name in key
            and (after is None or after.name != change.before.name)
        ):
            return "it belongs to the key"
        return None

    def position(self) -> Position:
        """By delta-rs: no JVM. What is pending is not told."""
        return read_position(self.path, self._storage_options())

    def columns(self) -> tuple[StructType, tuple[Column, ...]]:
        """The payload's schema, and where it keeps each column; no JVM."""
        return read_columns(self.path, self._storage_options())

    @contextlib.contextmanager
    def image(self, source: Source) -> Iterator[TrailImage]:
        """What the trail says that the table holds; the tables are read at the position that they have now."""
        with self._errors("reading the position"):
            position = _position(read_state(TrailTables(self._spark, self.path)))
        image = TrailImage(self.trail, position, source)
        try:
            yield image
        finally:
            image.close()

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        if self._has_spark():
            tables = TrailTables(self._spark, self.path)
            with self._errors("looking at the trail"):
                position, begun = _position(read_state(tables)), tables.exist()
        else:  # whoever asks before anything runs
            position = self.position()
            begun = position.version is not None
        ddl = () if begun else (f"create the trail at {self.path}",)
        return Inspection(position, tuple(self._problems(source)), ddl, warnings=self._unproven())

    def _problems(self, source: Source) -> list[str]:
        """Why the table cannot be kept here."""
        problems = []
        if self._has_spark():
            try:
                require_writer(self._spark, self.path)
            except ConfigError as error:
                problems.append(f"{error.message}: {error.hint}")
        problems += [
            f"column {path} has no canonical form that could be hashed: leave it out of the source"
            for path in find_unsupported_fields(source.schema)
        ]
        problems += self._sealing.find_problems(source.schema) if self._sealing is not None else []
        problems += [
            f"the field {path} has a name that files cannot have without column mapping, which a trail has not"
            for path in find_unwritable_fields(source.schema)
        ]
        return problems

    def _with_ours(self, schema: StructType) -> StructType:
        return schema if self._sealing is None else self._sealing.extend_schema(schema)

    def _unproven(self) -> tuple[str, ...]:
        """Why this trail proves less than it could."""
        if self._signer is None:
            return ("nothing signs this trail: whoever can write to it can write it anew; set signing_key",)
        if not self._anchors:
            return ("its checkpoints stand nowhere outside of it: an older state is as good as this one; set anchors",)
        warnings = []
        for named in self._anchors:
            try:
                named.anchor.latest("")
            except CdfError as error:
                warnings.append(f"{error.message}: what is written will not be sealed there ({error.hint})")
        return tuple(warnings)

    def open(self, source: Source) -> Position:
        self.close()
        if problems := self._problems(source):
            raise TargetNotReady(
                f"the trail at {self.path} cannot take this table: " + "; ".join(problems),
                hint="`deltarelay plan` shows this list without starting a run",
                problems=problems,
            )
        try:
            with self._errors("opening the trail"):
                self._lease = Lease(self._spark, f"{self.path}/_lease", target=self.path)
                tables = self._tables = TrailTables(self._spark, self.path)
                columns = extend_columns((), self._with_ours(source.schema))
                key = [column.stored for column in columns if column.name in source.key]
                tables.take_over(row_type(columns, stored=True), key)
                self._state = self._pin = None
                self.note_readings()
                state = self._stands()
            self._unsealed = not self._is_sealed(state)
            self._seal(0)
        except BaseException:
            self.close()
            raise
        log.info("lease taken", extra={"target": self.path, "epoch": tables.epoch, "position": state.version})
        return _position(state)

    def close(self) -> None:
        try:
            if self._tables is not None:
                self._seal(0)
        except ForkedTrail as error:
            log.error("not sealed: the trail is not what was signed", extra={"target": self.path, **error.fields})
        except Exception as error:  # the next runner seals it
            log.warning("not sealed", extra={"target": self.path, "error": type(error).__name__})
        finally:
            self._tables = None
            lease, self._lease = self._lease, None
            if lease is not None:
                lease.close()

    def _held(self) -> TrailTables:
        if self._tables is None:
            raise PositionError("the sink is not open", hint="call open first")
        return self._tables

    def _stands(self) -> State:
        """Where the trail stands; by its tables after a failure, and after opening."""
        tables = self._held()
        with self._errors("reading the position"):
            state = self._known()
            if state is None:
                proves = self._signer is not None and bool(self._anchors)
                state = read_state(tables, by_log=not proves)
                if proves:
                    self._confirm(state)
                clear_rest(tables, state)
                finish_removal(tables, state)
                remove_folders(tables)
                row = tables.read(PAYLOAD).schema["row"].dataType
                assert isinstance(row, StructType)
                self._state, self._row = state, row
        return state

    def _confirm(self, state: State) -> None:
        try:
            self.trail.confirm(state)
        except ForkedTrail:
            self._held().check()  # a successor, which may have written in between, is the better word for it
            raise

    def _known(self) -> State | None:
        """Where the trail stands; None after a failure, and once somebody else has changed the ledger."""
        if not self._held().check():
            self._state = None
        return self._state

    # ── load, apply ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        state = self._stands()
        if state.version is not None:
            raise WindowOutOfOrder(
                f"the trail at {self.path} stands at version {state.version}", hint="run goes on from there"
            )
        commit = Commit(snapshot.version, snapshot.timestamp or _UNKNOWN, operation=None)
        bounds = Bounds(snapshot.version, snapshot.version)
        return self._written(_Job(bounds, True, snapshot.table_id, snapshot, [commit]), state)

    def apply(self, window: Window) -> Applied:
        state = self._stands()
        if state.table_id is not None and window.table_id != state.table_id:
            raise TableReplaced(
                f"the window is of another table than the one the trail at {self.path} is of",
                hint="take a new trail for it",
            )
        if state.version is not None and window.last <= state.version:
            return Applied(position=state.version, replayed=True)
        if state.version is not None and window.first != state.version + 1:
            raise WindowOutOfOrder(
                f"a window from version {window.first} does not follow the position of {self.path}, "
                f"which is {state.version}",
                hint="run goes on from the position",
                position=state.version,
            )
        if state.version is not None:
            self._follows_on(window, state.version)
        return self._written(
            _Job(Bounds(window.first, window.last), False, window.table_id, window, window.commits), state
        )

    def _follows_on(self, window: Window, version: int) -> None:
        """A source that was put back and has grown past the position since has other commits up to there."""
        if self._pin is None or self._pin[0] != version:
            with self._errors("reading the ledger"):
                self._pin = version, read_record_of_version(self._held(), version).log_sha256
        _, pin = self._pin
        if pin is None:  # a baseline has none
            return
        try:
            told = window.commit_sha256(version)
        except VersionsExpired:  # nothing is left to compare with
            return
        if told != pin:
            raise TableReplaced(
                f"version {version} of the source is not the one that the trail at {self.path} has: the table was put back "
                "to an earlier state and written on, or somebody has edited its log",
                hint="`deltarelay audit reconcile` tells where they part; take a new trail for what the table is now",
            )

    def _written(self, job: _Job, state: State) -> Applied:
        tables = self._held()
        pending = state.pending
        if pending is not None and (job.bounds.last > pending.last or job.baseline != state.pending_baseline):
            raise self._unfinished(pending, state)
        columns = extend_columns(state.columns, self._with_ours(job.rows.schema), self._row)
        self._state = None  # until it is known to be durable: what a failure leaves, the tables tell
        commits = self._timed(job.commits, state)
        seconds: dict[str, float] = {}
        roots: Mapping[int, CommitRoots] = {}
        job = replace(job, commits=commits)
        if pending is not None:  # also where the source has no rows: then nothing may be there
            columns, roots = self._of_pending(job, state, seconds)
        self._admit(columns)
        with self._errors("reading the source's log"):
            untimed = [commit.version for commit in commits if commit.timestamp is _UNKNOWN]
            told = describe_commits(commits, self._pins(job), columns, untimed=untimed)
        if pending is None and _has_rows(job):
            write = self._by_driver if self._is_small(job) else self._by_tasks
            roots = write(job, columns, seconds)
        with self._errors("writing the ledger"), timed(seconds, "ledger"):
            self._state = append_records(
                tables,
                state,
                told,
                kind="baseline" if job.baseline else "commit",
                table_id=job.table_id,
                columns=columns,
                roots=roots,
                signer=self._signer,
            )
        self._pin = job.bounds.last, told[-1]["log_sha256"]
        self._unsealed = True
        self._seal(SEAL_SECONDS)
        counts = {kind: sum(root.counts.get(kind, 0) for root in roots.values()) for kind in _COUNTED}
        return Applied(
            position=job.bounds.last,
            inserts=counts["insert"],
            updates=counts["update_postimage"],
            deletes=counts["delete"],
            seconds=seconds,
        )

    def _timed(self, commits: Sequence[Commit], state: State) -> list[Commit]:
        """With the times that pending events have, where these are the source's: nobody else's are believed."""
        if not state.pending_times:
            return list(commits)
        before = None
        if state.version is not None:
            with self._errors("reading the ledger"):
                said = read_record_of_version(self._held(), state.version).time
            before = None if said is None else dt.datetime.fromisoformat(said)
        found = []
        for commit in commits:
            told = commit.timestamp
            # Delta tells times that do not go up as a millisecond after the one before, among those that it is asked for
            later = told if before is None or told is _UNKNOWN else max(told, before + dt.timedelta(milliseconds=1))
            if commit.version in state.pending_times:
                at = state.pending_times[commit.version] or _UNKNOWN
                if told is not _UNKNOWN and (at is _UNKNOWN or min(abs(at - told), abs(at - later)) > _SAME_TIME):
                    raise self._not_ours(Bounds(commit.version, commit.version))
                told = later = at
            found.append(replace(commit, timestamp=told))
            before = None if later is _UNKNOWN else later
        return found

    def _unfinished(self, pending: Bounds, state: State) -> WindowOutOfOrder:
        return WindowOutOfOrder(
            f"the trail at {self.path} has the events of version {pending.first} to {pending.last} without their "
            "records: that comes first",
            hint="`deltarelay run` finishes it, with the `start` that it was begun with: "
            + ("snapshot" if state.pending_baseline else "one of the changes, such as earliest"),
            position=state.version,
        )

    def _admit(self, columns: tuple[Column, ...]) -> None:
        """Have the payload take what is new among the columns, where Delta does not do so by itself."""
        assert self._row is not None
        new = [field for field in row_type(columns, stored=True).fields if field.name not in self._row.names]
        if '"timestamp_ntz"' in StructType(new).json():
            with self._errors("adding a column"):
                self._held().enable_timestamp_ntz()
        self._row = StructType([*self._row.fields, *new])

    # ── remove ───────────────────────────────────────────────────────────────────────────────────────────────────

    def remove(self, places: DataFrame, reasons: Mapping[str, str]) -> None:
        """Take values out of the trail, on the open sink; their events stay, and a record tells what went and why.

        ``places``: the events, by ``version`` and ``index`` (long). ``reasons``: some of
        ``audit.writing.removal.REASONS``. May be called again after a failure. Raises WindowOutOfOrder while a window is
        to be finished first."""
        state = self._stands()
        if state.pending is not None:
            raise self._unfinished(state.pending, state)
        self._state = None
        with self._errors("removing values"):
            self._state = remove_values(self._held(), state, places, reasons, signer=self._signer)
        self._unsealed = True
        self._seal(0)

    def clear(self, keys: Collection[bytes], reasons: Mapping[str, str]) -> None:
        """Take out of the trail what these keys have sealed, under the rules of ``remove``; the rows stay."""
        state = self._stands()
        if state.pending is not None:
            raise self._unfinished(state.pending, state)
        self._state = None
        with self._errors("removing what was sealed"):
            self._state = remove_encrypted(self._held(), state, keys, reasons, signer=self._signer)
        self._unsealed = True
        self._seal(0)

    def note(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Take steps of an erasure into the ledger, on the open sink. Raises WindowOutOfOrder as ``remove`` does."""
        state = self._stands()
        if state.pending is not None:
            raise self._unfinished(state.pending, state)
        self._state = None
        with self._errors("noting an erasure"):
            self._state = append_notes(self._held(), state, steps, signer=self._signer)
        self._unsealed = True
        self._seal(0)

    def note_readings(self) -> None:
        """Take into the ledger, on the open sink, who has read what is sealed. Where a window is to be finished first, the
        next runner does."""
        state = self._stands()
        if self._registry is None or state.pending is not None:
            return
        registry, self._state = self._registry(), None
        with self._errors("noting who has read what is sealed"):
            self._state = note_readings(self._held(), state, registry, self.path, signer=self._signer)
        self._unsealed |= self._state != state

    # ── erasing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def note_erasure(self, table: str, key: tuple[str, ...], run: str, steps: Sequence[Reached]) -> None:
        note(self, table, key, run, steps)

    def kept(self, source: ChangeFeed, columns: Collection[str]) -> Iterator[DataFrame]:  # noqa: ARG002 - it knows its own
        return kept_values(self, columns, self._registry)

    def past(
        self,
        catch: Callable[[DataFrame], DataFrame],
        sealed: SealedFor,
        states: Callable[[str], States] | None,
    ) -> DataFrame:
        return past(self.trail, catch, sealed, states)

    def erase(self, erasing: Erasing) -> Mapping[str, int]:
        with self._errors("erasing in the trail"):
            return forget(self, erasing)

    def purge(self, erasing: Erasing, *, now: dt.datetime) -> Purged:
        with self._errors("purging the trail"):
            return purge(self, erasing, now=now)

    def scan(self, needles: Needles) -> Scanned:
        return scan(self.path, self._files, needles)

    # ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def seals(self) -> bool:
        """Whether anything is sealed in it, whatever is named now. Needs no ``open``; reads only."""
        tables = TrailTables(self._spark, self.path)
        with self._errors("looking for what is sealed"):
            return tables.exist() and has_groups(tables.read(PAYLOAD))

    def unsealed(self) -> PlaintextRows:
        """Rows from before a class was named, whose columns are readable. Needs no ``open``; reads only."""
        if self._sealing is None or not TrailTables(self._spark, self.path).exist():
            return PlaintextRows()
        with self._errors("looking for what is not sealed"):
            return count_plaintext_rows(self.trail, self._sealing)

    def seal_earlier(
        self,
        table: str,
        key: tuple[str, ...],
        reasons: Mapping[str, str],
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Seal these rows under records that tell it; opens the sink itself. ``progress`` is told how many are done. May be
        called again after a failure. Raises ConfigError where nothing is to be sealed here, and WindowOutOfOrder as
        ``remove`` does."""
        if self._sealing is None:
            raise ConfigError("no class of columns is named", hint="name them: `classes` in `erasure.tables`")
        with held_open(self, table, key, "audit seal"):
            state = self._stands()
            if state.pending is not None:
                raise self._unfinished(state.pending, state)
            self._state = None
            with self._errors("sealing what was written before"):
                held = Reencryption(self.trail, self._held(), self._sealing, reasons, self._signer)
                self._state = held.run(state, progress)
            self._unsealed = True
            self._seal(0)

    def _is_sealed(self, state: State) -> bool:
        """By what the anchors have: a runner before may have died before it signed what it wrote."""
        origin = self._held().origin()
        try:
            notes = [named.anchor.latest(origin) for named in self._anchors] if self._signer is not None else []
            return all(state.sequence == (0 if note is None else parse_note(origin, note).size) for note in notes)
        except (CdfError, ProofError, ValueError):  # whoever seals sees it again
            return False

    def _seal(self, after: float) -> None:
        """Sign what was written, where the last signature is older than so many seconds. Raises ForkedTrail."""
        if self._signer is None or not self._unsealed or time.monotonic() - self._sealed_at < after:
            return
        self._sealed_at = time.monotonic()
        try:
            sealed = self.trail.checkpoint(self._known())
        except ForkedTrail:
            raise
        except CdfError as error:  # what was written is durable all the same
            extra = {"target": self.path, "error": error.code, "reason": error.message, "hint": error.hint}
            log.warning("not sealed", extra=extra)
        else:
            self._unsealed = bool(sealed.missed)
            log.info("sealed", extra={"target": self.path, "records": sealed.records, "position": sealed.version})
            for one in sealed.missed:
                extra = {"target": self.path, "anchor": one.anchor, "error": one.error.code, "hint": one.error.hint}
                log.warning("not sealed at every anchor", extra=extra)

    def _is_small(self, job: _Job) -> bool:
        from cdf.changes.window import Window

        return isinstance(job.rows, Window) and job.rows.change_bytes <= self._small_window_bytes

    def _by_driver(
        self, job: _Job, columns: tuple[Column, ...], seconds: dict[str, float]
    ) -> Mapping[int, CommitRoots]:
        tables = self._held()
        with timed(seconds, "read"):
            try:
                payload = self._payload(job, columns).build_on_driver()
            except CdfError:
                raise
            except Exception as error:
                raise job.rows.failure(error) from error
        if payload is None:
            return self._by_tasks(job, columns, seconds)
        if not payload.num_rows:
            return {}
        events = build_events(payload, job.table_id)
        with self._errors("writing the payload"), timed(seconds, "payload"):
            schema = payload_schema(row_type(columns, stored=True))
            tables.append(PAYLOAD, tables.create_rows(payload, schema), about=_about(job))
        with self._errors("writing the events"), timed(seconds, "events"):
            tables.append(EVENTS, tables.create_rows(events, STORED_EVENT), about=_about(job))
        return compute_roots(events)

    def _by_tasks(self, job: _Job, columns: tuple[Column, ...], seconds: dict[str, float]) -> Mapping[int, CommitRoots]:
        """Each step reads what the one before has made durable, as of that very commit."""
        tables = self._held()
        with timed(seconds, "payload"):
            try:
                written = tables.append(
                    PAYLOAD, self._payload(job, columns).build_on_cluster(_partitions(job)), about=_about(job)
                )
                self._alone(PAYLOAD, job, written)
            except CdfError:
                raise
            except Exception as error:
                raise job.rows.failure(error) from error
        with self._errors("writing the events"):
            with timed(seconds, "events"):
                events = build_event_rows(tables.read(PAYLOAD, version=written).where(_within(job)), job.table_id)
                written = tables.append(EVENTS, events, about=_about(job))
                self._alone(EVENTS, job, written)
            with timed(seconds, "roots"):
                return compute_commit_roots(tables.read(EVENTS, version=written).where(_within(job)))

    def _alone(self, name: str, job: _Job, written: int) -> None:
        """That commit has brought all that the table has of the window: the next step reads rows of no other commit."""
        if not self._held().read(name, version=written - 1).where(_within(job)).isEmpty():
            raise self._not_ours(job.bounds)

    def _not_ours(self, bounds: Bounds) -> TargetNotReady:
        return TargetNotReady(
            f"the trail at {self.path} has rows of version {bounds.first} to {bounds.last} that no runner has left there: "
            "they have no records, and are not the changes which the source has",
            hint="somebody else has written into the trail: `deltarelay audit verify`, then put back a backup",
        )

    def _of_pending(
        self, job: _Job, state: State, seconds: dict[str, float]
    ) -> tuple[tuple[Column, ...], Mapping[int, CommitRoots]]:
        """Of events that are durable already; and the columns that their runner wrote them with. They get records only if
        they are what the source has."""
        tables = self._held()
        events, payload = (tables.read_current(name).where(_within(job)) for name in (EVENTS, PAYLOAD))
        registry = self._registry

        def states(ids: Iterable[bytes]) -> Mapping[bytes, KeyState]:
            return {} if registry is None else registry().read_states(ids)

        def right(columns: tuple[Column, ...]) -> bool:
            anew = self._payload(job, columns, sealed=False).build_on_cluster(_partitions(job))
            return matches_source(events, payload, anew, columns, job.table_id, states)

        with timed(seconds, "events"):
            try:
                columns = next(filter(right, self._ways(job, state, payload)), None)
            except CdfError:
                raise
            except Exception as error:
                raise job.rows.failure(error) from error
        if columns is None:
            raise self._not_ours(job.bounds)
        with self._errors("reading the events"), timed(seconds, "roots"):
            return columns, compute_commit_roots(events)

    def _ways(self, job: _Job, state: State, payload: DataFrame) -> list[tuple[Column, ...]]:
        """The columns that a window may have been written with, whatever is configured by now: with the one of ours, which
        tells what is sealed, or without."""
        plain = job.rows.schema
        ours = plain if SEALED in plain.names else StructType([*plain.fields, StructField(SEALED, GROUPS)])
        sealed = has_encrypted_rows(payload)
        if sealed and self._registry is None:
            raise TargetNotReady(
                f"the trail at {self.path} has rows of version {job.bounds.first} to {job.bounds.last} that were written "
                "sealed, and have no records: without their keys they cannot be held against the source",
                hint="put `erasure.keys` back into the configuration, and run again",
            )
        schemas = [ours] if sealed else [plain, ours] if self._sealing is None else [ours, plain]
        return [extend_columns(state.columns, schema, self._row) for schema in schemas]

    def _payload(self, job: _Job, columns: tuple[Column, ...], *, sealed: bool = True) -> PayloadRows:
        from cdf.changes.window import Window

        rows = job.rows
        if isinstance(rows, Window):
            feed = self._settled(rows.read(), rows)
            rows.confirm()  # the files that are read are settled by now
        else:
            feed = _as_feed(rows)
        withheld = erasing_versions(job.commits)
        sealing = self._sealing if any(one.live and one.name == SEALED for one in columns) else None
        if sealing is not None:
            feed = sealing.add_keys(feed, withheld) if sealed else sealing.add_empty_keys(feed)
        return PayloadRows(
            feed,
            columns,
            rows.key,
            {commit.version: None if commit.timestamp is _UNKNOWN else commit.timestamp for commit in job.commits},
            paired=isinstance(rows, Window) and not _without_updates(rows),
            baseline=job.baseline,
            withheld=withheld,
            people=() if sealing is None else sealing.people,
        )

    def _settled(self, feed: DataFrame, window: Window) -> DataFrame:
        """The same rows, planned now: a DataFrame that is made of another one is planned anew and lists the log again."""
        from pyspark.sql import DataFrame

        try:
            session = self._spark._jsparkSession
            planned = feed._jdf.queryExecution()
            rows = session.internalCreateDataFrame(planned.toRdd(), feed._jdf.schema(), False)
        except Exception as error:
            raise window.failure(error) from error
        return DataFrame(rows, self._spark)

    def _pins(self, job: _Job) -> list[str | None]:
        from cdf.changes.window import Window

        if not isinstance(job.rows, Window):
            return [None]
        return [job.rows.commit_sha256(commit.version) for commit in job.commits]

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
            return
        except CdfError:
            raise
        except Exception as error:
            condition, file = condition_of(error), find_named_file(error)
            why = "; ".join(filter(None, (condition or type(error).__name__, file)))
            failure = SinkError(
                f"{doing} at {self.path} failed ({why})",
                hint="the trail stands where it stood: mend what the condition names, and run again",
                condition=condition,
            )
            cause = error
        raise failure from cause


_WITHOUT_UPDATES = ("WRITE", "DELETE", "STREAMING UPDATE", "TRUNCATE", "RESTORE")
_COUNTED = ("insert", "update_postimage", "delete")
_SAME_TIME = dt.timedelta(seconds=1)
"""Storage may tell a file's time with less digits after the log was copied."""
_UNKNOWN = dt.datetime.min.replace(tzinfo=dt.UTC)
"""Of a baseline whose commit the source's log does not tell any more."""


def _position(state: State) -> Position:
    return Position(state.version, state.table_id, state.pending)


def _within(job: _Job) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.col("version").between(job.bounds.first, job.bounds.last)


def _partitions(job: _Job) -> int:
    return min(_MOST_PARTITIONS, 1 + getattr(job.rows, "change_bytes", 0) // _BYTES_PER_PARTITION)


def _has_rows(job: _Job) -> bool:
    from cdf.changes.window import Window

    return not isinstance(job.rows, Window) or job.rows.has_changes


def _about(job: _Job) -> Mapping[str, Any]:
    return {"first": job.bounds.first, "last": job.bounds.last}


def _without_updates(window: Window) -> bool:
    """The log shows that no row was updated."""
    changing = [commit.operation for commit in window.commits if commit.change_files]
    return all(operation in _WITHOUT_UPDATES for operation in changing)


def _as_feed(snapshot: Snapshot) -> DataFrame:
    from pyspark.sql import functions as F

    return snapshot.read().select(
        "*",
        F.lit(INSERT).alias(CHANGE_TYPE),
        F.lit(snapshot.version).cast("long").alias(COMMIT_VERSION),
    )

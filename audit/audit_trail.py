"""A trail as those see it who keep it and those who ask it: sealed, verified, proven, joined into one view.

``audit.trail.tables`` knows how it is stored, ``audit.queries.questions`` what is asked of it; the sink alone writes events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from audit.anchors.base import AnchorFailure
from audit.checkpoints.sign_ledger import contradiction, sign_ledger
from audit.errors import ForkedTrail
from audit.files import find_special_file
from audit.hashing.merkle import format_proof, inclusion_path
from audit.hashing.row_encoding import encode_rows
from audit.proof import Proof, ProofError, VerifierKey, check, leaf_hash, read_checkpoint, read_note, verify_note
from audit.trail.column_history import Column, columns_from_json, row_type
from audit.trail.compaction import Compaction, compact_files
from audit.trail.events import CHUNK_EVENTS
from audit.trail.lease import Lease
from audit.trail.ledger import (
    State,
    is_signed_end,
    read_record_at,
    read_record_of_version,
    read_state,
    read_state_from_records,
)
from audit.trail.record_kinds import parse_record
from audit.trail.tables import EVENT, EVENTS, LEDGER, PAYLOAD, TrailTables
from audit.verification import FoundCheckpoint, TrailVerification, VerifiedState, verify_trail
from cdf.errors import CdfError, ConfigError, VerificationError
from cdf.result import Result
from cdf.source.single_writer import COMMITS_SETTING, require_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.anchors.base import Anchor
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import States
    from audit.signing.signer import Signer

__all__ = ["NamedAnchor", "SignedCheckpoint", "Trail"]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NamedAnchor:
    """A place for checkpoints, and what it is called where something is said about it."""

    name: str
    anchor: Anchor


@dataclass(frozen=True, slots=True)
class SignedCheckpoint(Result):
    """A checkpoint that was signed, and where it is kept."""

    trail: str
    origin: str
    records: int
    version: int | None
    """The last commit of the source that it covers."""
    anchors: tuple[str, ...]
    """Where it stands now."""
    note: str
    missed: tuple[AnchorFailure, ...] = ()


class Trail:
    """The trail below ``path``. ``signer`` is needed to seal, ``keys`` are trusted besides the signer's own."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        signer: Signer | None = None,
        keys: Sequence[VerifierKey] = (),
        anchors: Sequence[NamedAnchor] = (),
        states: States | None = None,
        sealing: ColumnEncryption | None = None,
    ) -> None:
        """``states``: of the registry of keys (``Registry.states``): what is sealed is read. With None it stays sealed.
        ``sealing``: what is sealed here, by which somebody's rows are found without opening those of everybody."""
        self.path = path.rstrip("/")
        self.states, self.sealing = states, sealing
        self.tables = TrailTables(spark, self.path)
        self.anchors = tuple(anchors)
        self._signer = signer
        self._keys = tuple(keys) if signer is None else (signer.verifier, *keys)

    def there(self) -> TrailTables:
        """The tables. Raises ConfigError where there are none."""
        if not self.tables.exist():
            raise ConfigError(f"there is no trail at {self.path}", hint="`deltarelay run` begins it")
        return self.tables

    # ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def checkpoint(self, state: State | None = None, *, accept: bool = False) -> SignedCheckpoint:
        """Sign what the ledger holds, and publish it to every anchor.

        ``state``: where it is known to stand, by who wrote it; else it has to be proven (``confirm``), or whoever asks has
        to ``accept`` whatever is there. Raises ForkedTrail where a checkpoint from before is contradicted: nothing is
        signed then. An anchor that does not answer keeps the others from nothing; where none has it in the end, that is
        raised.
        """
        signer = self._to_sign_with()
        try:
            return self._checkpoint(signer, state, accept)
        except ForkedTrail:  # a runner may have published a longer one meanwhile: this time that one is held against it
            return self._checkpoint(signer, state, accept)

    def _to_sign_with(self) -> Signer:
        if self._signer is None:
            raise ConfigError(
                "the trail has no key to sign with", hint="set signing_key; `deltarelay audit keygen` makes one"
            )
        return self._signer

    def confirm(self, state: State) -> None:
        """That the ledger's end is no work of somebody else's, before it is obeyed or signed.

        Somebody with a key that is trusted left it so, or an anchor has a checkpoint of just this. Raises ForkedTrail.
        Where no anchors are set nothing is asked: what is signed stands nowhere.
        """
        missed: dict[str, CdfError] = {}
        if self.anchors:
            self._confirmed(state, self._before(missed), missed)

    def _confirmed(self, state: State, before: Sequence[str], missed: Mapping[str, CdfError]) -> None:
        """``before``: what the anchors have, but for those that ``missed`` tells of."""
        if any((self._size(note) or 0) > state.sequence for note in before):
            raise contradiction(self.there(), state.sequence)
        if is_signed_end(self._keys, self.there(), state):
            return
        if any(self._size(note) == state.sequence for note in before):
            _, version = sign_ledger(self.tables, self._to_sign_with(), state, before=before, keys=self._keys)
            if version == state.version:
                return
        for error in missed.values():
            raise error
        raise ForkedTrail(
            f"the ledger of the trail at {self.path} does not end as anybody left it who has its signing key: its last "
            "records may be made up, and no event or record is written or signed after them",
            hint="look at them: `deltarelay audit verify`. A trail that was begun without signing_key is signed as it is by "
            "`deltarelay audit checkpoint --accept`; the verifier key of a signing key from before belongs among keys",
            size=state.sequence,
        )

    def _before(self, missed: dict[str, CdfError]) -> list[str]:
        return [note for named in self.anchors if (note := _tried(missed, named, self._newest)) is not None]

    def _checkpoint(self, signer: Signer, state: State | None, accept: bool) -> SignedCheckpoint:
        tables = self.there()
        missed: dict[str, CdfError] = {}
        before = self._before(missed)
        if state is None:
            state = read_state_from_records(tables)
            if self.anchors and not accept:
                self._confirmed(state, before, missed)
        note, version = sign_ledger(tables, signer, state, before=before, keys=self._keys)
        checkpoint = read_checkpoint(verify_note(note, [signer.verifier])[0])
        kept = []
        for named in self.anchors:
            if named.name not in missed:
                _tried(missed, named, lambda named: named.anchor.publish(checkpoint.origin, note))
            if named.name not in missed:
                kept.append(named.name)
        forked = next((error for error in missed.values() if isinstance(error, ForkedTrail)), None)
        if forked is not None or (missed and not kept):
            raise forked or next(iter(missed.values()))
        return SignedCheckpoint(
            trail=self.path,
            origin=checkpoint.origin,
            records=checkpoint.size,
            version=version,
            anchors=tuple(kept),
            note=note,
            missed=tuple(AnchorFailure(name, error) for name, error in missed.items()),
        )

    def seen(self, *, least: int = 0) -> tuple[list[FoundCheckpoint], list[AnchorFailure]]:
        """Every checkpoint over at least so many records that the anchors keep; and the anchors that cannot be asked."""
        origin, missed = self.there().origin(), dict[str, CdfError]()
        found = (
            _tried(missed, named, lambda named: [*named.anchor.notes(origin, least=least)]) for named in self.anchors
        )
        seen = [
            self._seen(note, named.name)
            for named, notes in zip(self.anchors, found, strict=True)
            for note in notes or ()
        ]
        return seen, [AnchorFailure(name, error) for name, error in missed.items()]

    def _seen(self, note: str, where: str) -> FoundCheckpoint:
        try:
            return FoundCheckpoint(read_checkpoint(verify_note(note, self._keys)[0]), where, signed=True)
        except ProofError:
            pass
        try:
            return FoundCheckpoint(read_checkpoint(read_note(note)[0]), where, signed=False)
        except ProofError:
            return FoundCheckpoint(None, where, signed=False)

    def _newest(self, named: NamedAnchor) -> str | None:
        """The largest checkpoint there that can be believed; VerificationError where there are but others."""
        origin = self.tables.origin()
        latest = named.anchor.latest(origin)
        if latest is None or self._size(latest) is not None:
            return latest
        notes = [note for note in named.anchor.notes(origin) if self._size(note) is not None]
        if not notes:
            raise VerificationError(
                f"nothing that {named.name} has of this trail is signed by a key that is trusted",
                hint="where the signing key was changed, put the verifier key of the one before among `keys`",
            )
        return max(notes, key=lambda note: self._size(note) or 0)

    def _size(self, note: str) -> int | None:
        """Records that a checkpoint of this trail is over; None where it is none, or nobody who is trusted signed it."""
        one = self._seen(note, "")
        of_this = one.checkpoint is not None and one.checkpoint.origin == self.tables.origin()
        return one.checkpoint.size if one.checkpoint is not None and one.signed and of_this else None

    # ── verifying ────────────────────────────────────────────────────────────────────────────────────────────────

    def verify(
        self,
        *,
        since: VerifiedState | None = None,
        before: VerifiedState | None = None,
        extra: Sequence[tuple[str, str]] = (),
        origin: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> tuple[TrailVerification, VerifiedState | None]:
        """Everything, or what came after ``since``; → what was found, and where the next one may go on.

        ``before``: an earlier verification of which everything has to be the continuation. ``extra``: checkpoints that
        the caller brings: where from, and the note. ``origin``: the trail that it has to be.
        """
        if "://" not in self.path and (found := find_special_file(Path(self.path.removeprefix("file:")))) is not None:
            raise VerificationError(
                f"{found} is no regular file: whoever reads the trail would wait for ever",
                hint="look at who put it there, put the file back from a backup, and verify again",
            )
        tables = self.there()
        seen, missed = self.seen(least=0 if since is None or extra else since.size)
        return verify_trail(
            tables,
            [*seen, *(self._seen(note, where) for where, note in extra)],
            since=since,
            before=before,
            brought=bool(extra),
            anchored=bool(self.anchors),
            unreachable=missed,
            origin=origin,
            keys=self._keys,
            progress=progress,
        )

    def optimize(self, key: Sequence[str], *, progress: Callable[[str], None] | None = None) -> Compaction:
        """Few files, and those of one record close together (``audit.trail.compaction``). ``key``: columns of the source.

        Raises ConfigError where nothing keeps writers to S3 apart; where that is a promise of one writer alone, a runner is
        waited for and kept out meanwhile (LeaseHeld).
        """
        tables = self.there()
        require_writer(tables.spark, self.path)
        with contextlib.ExitStack() as held:
            if tables.spark.conf.get(COMMITS_SETTING, None) == "single_writer":
                held.callback(Lease(tables.spark, f"{self.path}/_lease", target=self.path).close)
            return compact_files(tables, self.columns(), key, progress=progress)

    # ── proving ──────────────────────────────────────────────────────────────────────────────────────────────────

    def prove(self, version: int, index: int, *, show_row: bool = False) -> str:
        """The proof of one event, as a text file for ``audit.proof``; with its row's values only where that is asked for.

        Raises VerificationError where it would not hold: where the trail is not what was signed.
        """
        from pyspark.sql import functions as F

        tables = self.there()
        events = tables.read(EVENTS).where(F.col("version") == version)
        first = index // CHUNK_EVENTS * CHUNK_EVENTS
        rows = events.where(F.col("index").between(first, first + CHUNK_EVENTS - 1)).orderBy("index").toArrow()
        places = rows.column("index").to_pylist()
        if index not in places:
            raise ConfigError(
                f"version {version} has no event {index} in the trail", hint="`deltarelay audit history` names them"
            )
        note, size = self._newest_note()
        try:
            event = rows.slice(places.index(index), 1)
            leaves, record, chunk_roots = self._ledger(version, size)
            path = [
                *inclusion_path(
                    [leaf_hash(one) for one in encode_rows(rows.select(EVENT.names), EVENT)], index - first
                ),
                *inclusion_path(chunk_roots, index // CHUNK_EVENTS),
            ]
            id, hash = (event.column(name)[0].as_py() for name in ("id", "row_hash"))
            salt, row = self._row(id, version, hash) if show_row else (None, None)
            proof = Proof(
                event=encode_rows(event.select(EVENT.names), EVENT)[0],
                salt=salt,
                row=row,
                index=index,
                size=record["rows"],
                path=path,
                record=record["text"],
                sequence=record["sequence"],
                ledger_path=inclusion_path(leaves, record["sequence"]),
                note=note,
            )
            text = format_proof(proof)
            check(text, [str(key) for key in self._keys])
        except (ProofError, ValueError, KeyError, IndexError, TypeError) as error:
            raise VerificationError(
                f"event {index} of version {version} cannot be proven"
                + (f": {error}" if isinstance(error, ProofError) else ""),
                hint="`deltarelay audit verify` tells what is altered",
            ) from error
        return text

    def _newest_note(self) -> tuple[str, int]:
        """The largest checkpoint that is signed by a key that is trusted, and the records that it is over."""
        missed: dict[str, CdfError] = {}
        notes = [note for named in self.anchors if (note := _tried(missed, named, self._newest)) is not None]
        if missed and not notes:
            raise next(iter(missed.values()))
        if not notes:
            raise ConfigError(
                "no checkpoint is there that a proof could lead to",
                hint="`deltarelay audit checkpoint` signs one and keeps it at the anchors",
            )
        return max(((note, self._size(note) or 0) for note in notes), key=itemgetter(1))

    def _ledger(self, version: int, size: int) -> tuple[list[bytes], dict[str, Any], list[bytes]]:
        """The hashes of the first ``size`` records; the record of the version, and the roots of its chunks."""
        from pyspark.sql import functions as F

        ledger = self.tables.read(LEDGER).where(F.col("sequence") < size)
        leaves = [bytes(row["leaf"]) for row in ledger.select("leaf", "sequence").orderBy("sequence").collect()]
        rows = ledger.where(F.col("version") == version).select("record", "chunk_roots").collect()
        if not rows:
            raise ConfigError(
                f"version {version} is not covered by a checkpoint yet", hint="`deltarelay audit checkpoint` signs one"
            )
        text, roots = rows[0]["record"].encode(), bytes(rows[0]["chunk_roots"])
        record = {**(parse_record(text) or {}), "text": text}
        return leaves, record, [roots[at : at + 32] for at in range(0, len(roots), 32)]

    def _row(self, id: bytes, version: int, hash: bytes) -> tuple[bytes, bytes]:
        """Salt and encoding of an event's row, which has this hash."""
        from pyspark.sql import functions as F

        rows = self.tables.read(PAYLOAD).where((F.col("version") == version) & (F.col("id") == F.lit(bytearray(id))))
        found = rows.select("salt", "row", "row_hash").toArrow()
        if found.num_rows != 1:
            raise ConfigError("the values of this event are not in the trail any more", hint="leave out --show-row")
        if found.column("row_hash")[0].as_py() != hash:
            raise ConfigError(
                "the values of this event were sealed after they were written, or altered: nothing proves them any more",
                hint="leave out --show-row; `deltarelay audit verify` tells whether they were altered",
            )
        import pyarrow as pa
        import pyarrow.compute as pc

        live = [column for column in self.columns(version) if column.live]
        held = [pc.struct_field(found.column("row").combine_chunks(), column.stored) for column in live]
        schema = row_type(live, stored=False)
        encoded = encode_rows(pa.RecordBatch.from_arrays(held, names=schema.names), schema)[0]
        return bytes(found.column("salt")[0].as_py()), encoded

    def columns(self, version: int | None = None) -> tuple[Column, ...]:
        """Where the payload keeps the values of each column; as of a version of the source, or now."""
        if version is None:
            return read_state(self.there()).columns
        told = read_record_of_version(self.tables, version)
        return columns_from_json(
            (told if "columns" in told else read_record_at(self.tables, told["columns_at"]))["columns"]
        )


def _tried(missed: dict[str, CdfError], named: NamedAnchor, ask: Callable[[NamedAnchor], Answer]) -> Answer | None:
    """What the anchor answers; None where it fails, which is noted."""
    try:
        return ask(named)
    except CdfError as error:
        missed[named.name] = error
        return None

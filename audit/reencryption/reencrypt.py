"""Encrypts rows that were written before a class was configured: writes encrypted rows, then a record, then the payload.

The event keeps the hash of the plaintext row. The record names the places of the rows and has a root over their new
hashes, which are stored beside it; from then on the rows are verified against these. The former salt is removed with
the values, so that guesses cannot be tested against the event.

A record is permanent. Therefore the whole trail is verified first; the rows, their expected hashes and the ledger are
read as of exactly that state, so later alterations have no effect; and each row is compared with its event."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BinaryType, StructField, StructType

from audit.encryption.column_groups import keys_column
from audit.encryption.decrypt import has_groups
from audit.encryption.encrypt import ColumnEncryption, invalid_utf8_error, join_keys
from audit.hashing.merkle import merkle_root
from audit.reencryption.encrypt_batches import PLACE, encrypt_batches
from audit.reencryption.plaintext_rows import list_eras, select_plaintext_rows, struct_type
from audit.trail.column_history import GROUPS, SEALED
from audit.trail.ledger import append_removal
from audit.trail.ledger_state import State
from audit.trail.redaction import shorten_text
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables
from audit.verification.payload_records import read_cleared_keys, read_reencrypted_hashes
from audit.writing.encrypted_folder import folder_path, merge_folder, remove_folders
from cdf.errors import VerificationError
from cdf.spark_versions import collect_arrow, is_valid_utf8

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail
    from audit.signing.signer import Signer

__all__ = ["Reencryption"]

ROUND = 1_000_000
"""Maximum number of rows under one record, unless one file has more."""


@dataclass(frozen=True, slots=True)
class Reencryption:
    """A run, under the lease of the trail and without a pending window. ``tables``: the tables to write to."""

    trail: Trail
    tables: TrailTables
    encryption: ColumnEncryption
    reasons: Mapping[str, str]
    """Fields of ``audit.writing.removal.REASONS``."""
    signer: Signer | None = None

    def run(self, state: State, progress: Callable[[int], None] = lambda _: None) -> State:
        """Encrypt every plaintext row, under one record for each million rows. Returns the new state of the trail.
        ``progress``
        receives the number of rows that are done. Raises VerificationError where the trail was altered."""
        from pyspark.sql import functions as F

        if not has_groups(self.tables.read_current(PAYLOAD)):
            self._add_payload_columns()
        verified = copy(self.trail)
        verified.tables = self.trail.require_tables().pin()
        rows, flags = select_plaintext_rows(verified, self.encryption, F.col("_metadata.file_path").alias("file"))
        sizes = {row["file"]: row["count"] for row in rows.groupBy("file").count().collect()}
        if sizes:
            self._verify(verified, state)
        done = 0
        for files in _split_into_rounds(sizes):
            of_round = rows if len(files) == len(sizes) else rows.where(F.col("file").isin(files))
            state = self._run_round(state, verified, of_round, sorted(flags))
            done += sum(sizes[file] for file in files)
            progress(done)
        return state

    def _verify(self, trail: Trail, state: State) -> None:
        result, verified = trail.verify()
        if verified is not None and (verified.size, verified.previous) == (state.sequence, state.previous):
            return
        texts = [finding.text for finding in result.findings] or [
            "its ledger does not end at the record at which this run took the lease"
        ]
        raise VerificationError(
            f"the trail at {self.trail.path} differs from what was written: nothing is encrypted in it ({texts[0]})",
            hint="`deltarelay audit verify` reports what is altered",
        )

    def _add_payload_columns(self) -> None:
        """Add the columns of encrypted rows to the payload."""
        payload = self.tables.read_current(PAYLOAD)
        row = StructType([*struct_type(payload, "row").fields, StructField(SEALED, GROUPS)])
        rest = [field for field in payload.schema.fields if field.name not in ("row", "sealed")]
        new = [StructField("row", row), StructField("sealed", ArrayType(BinaryType()))]
        empty = payload.sparkSession.createDataFrame([], StructType([*rest, *new]))
        self.tables.append(PAYLOAD, empty, about={"sealing": "columns"})

    def _run_round(self, state: State, verified: Trail, rows: DataFrame, classes: Sequence[str]) -> State:
        """``rows``: some plaintext rows of ``verified``, the trail as it was verified."""
        tables, folder = self.tables, uuid.uuid4().hex  # unique: a runner that lost the lease may still be writing
        keyed = _add_keys(_add_expected_hashes(verified.tables, rows), self.encryption)
        columns = {**PLACE, "row": struct_type(rows, "row"), "sealed": ArrayType(BinaryType())}
        schema = StructType([StructField(name, type) for name, type in columns.items()])
        eras = list_eras(verified, self.encryption.people, rows)
        work = partial(encrypt_batches, eras, read_cleared_keys(verified.tables.read(LEDGER)))
        keyed.mapInArrow(work, schema).write.parquet(folder_path(tables, folder))
        written = tables.spark.read.schema(schema).parquet(folder_path(tables, folder))
        self._check_intact(written, folder)
        places = collect_arrow(written.select("version", "index", "id", "row_hash").orderBy("version", "index"))
        if (repeated := find_repeated_place(places)) is not None:
            raise self._refuse(*repeated, "has more than one row", folder)
        if not places.num_rows:
            remove_folders(tables, folder)
            return state
        leaves = places.column("row_hash").to_pylist()
        record: dict[str, Any] = {name: shorten_text(text) for name, text in self.reasons.items()}
        record |= {
            "sealed": _find_runs(places),
            "values": len(leaves),
            "hashes_root": merkle_root(leaves).hex(),
            "classes": classes,
            "made_in": folder,
        }
        state = append_removal(tables, state, record, kind="sealing", hashes=b"".join(leaves), signer=self.signer)
        merge_folder(tables, folder)
        return state

    def _check_intact(self, written: DataFrame, folder: str) -> None:
        altered = written.where("not intact").select("version", "index").orderBy("version", "index").limit(1).collect()
        if altered:
            version, index = altered[0]
            raise self._refuse(version, index, "has a row that is not what was written", folder)

    def _refuse(self, version: int, index: int, why: str, folder: str) -> VerificationError:
        remove_folders(self.tables, folder)
        return VerificationError(
            f"event {index} of version {version} of the trail at {self.trail.path} {why}: nothing is encrypted in its place",
            hint="`deltarelay audit verify` reports what is altered",
        )


def _split_into_rounds(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Files by number of rows → groups of files with at most ``ROUND`` rows."""
    files: list[str] = []
    count = 0
    for file, size in sorted(sizes.items()):
        if files and count + size > ROUND:
            yield files
            files, count = [], 0
        files.append(file)
        count += size
    if files:
        yield files


def find_repeated_place(places: pa.Table) -> tuple[int, int] | None:
    """Version and index of a place that occurs twice, or whose row id occurs twice: a record about it could never
    become true.
    ``places``: sorted by version and index."""
    import numpy as np

    versions, index = (places.column(name).to_numpy() for name in ("version", "index"))
    repeated = np.flatnonzero((np.diff(versions) == 0) & (np.diff(index) == 0)).tolist()
    if not repeated:
        known: dict[bytes, int] = {}
        repeated = [at for at, id in enumerate(places.column("id").to_pylist()) if known.setdefault(id, at) != at]
    return (int(versions[repeated[0]]), int(index[repeated[0]])) if repeated else None


def _find_runs(places: pa.Table) -> dict[str, list[list[int]]]:
    """By version, the first and last index of each run of consecutive places. ``places``: sorted by version and index."""
    import numpy as np

    versions, index = (places.column(name).to_numpy() for name in ("version", "index"))
    starts = np.flatnonzero(np.r_[True, (np.diff(versions) != 0) | (np.diff(index) != 1)])
    runs: dict[str, list[list[int]]] = {}
    for first, end in zip(starts, [*starts[1:], len(index)], strict=True):
        runs.setdefault(str(versions[first]), []).append([int(index[first]), int(index[end - 1])])
    return runs


def _add_expected_hashes(tables: TrailTables, rows: DataFrame) -> DataFrame:
    """Add ``index``, and ``expected``: the hash that the row must have. ``tables``: as they were verified."""
    from pyspark.sql import functions as F

    events = tables.read(EVENTS).select("id", "version", "index", F.col("row_hash").alias("expected"))
    later = read_reencrypted_hashes(tables.read(LEDGER))
    if later is not None:
        later = later.select(F.col("event_version").alias("version"), "index", "sealed_hash")
        events = events.join(later, ["version", "index"], "left")
        events = events.withColumn("expected", F.coalesce("sealed_hash", "expected")).drop("sealed_hash")
    return rows.join(events, ["id", "version"])


def _add_keys(rows: DataFrame, encryption: ColumnEncryption) -> DataFrame:
    """Add a ``keys_column`` for each person, from the columns ``who_0`` and so on."""
    from pyspark.sql import functions as F

    for at, person in enumerate(encryption.people):
        who = f"who_{at}"
        found, names = collect_arrow(rows.where(f"{who} is not null").select(who).distinct()).column(0), None
        with suppress(UnicodeDecodeError):
            names = found.to_pylist()
        if names is None:
            invalid = rows.where(~is_valid_utf8(F.col(who)))
            hint = "start a new trail after the last version that has such values"
            raise invalid_utf8_error(invalid, person.column, hint, version="version")
        values, tokens = ([name[1:] for name in names if name[0] == kind] for kind in "vt")
        keys = [(f"v{value}", own) for value, own in encryption.get_keys_by_value(person, values)]
        by_token = encryption.get_keys_by_token(person, [bytes.fromhex(token) for token in tokens])
        keys += [(f"t{token}", own) for token, own in zip(tokens, by_token, strict=True)]
        rows = join_keys(rows, rows[who], keys, keys_column(at))
    return rows

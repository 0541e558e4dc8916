"""Searches every file below the address of a Delta table, whether the table has it or not. No JVM.

Why a file is there and when it goes depends on whether it belongs to the table now, did before, or never did:

    current files               until the rows are rewritten
    former files, change files  since they were removed + delta.deletedFileRetentionDuration: VACUUM
    files of no commit          since they were written + the same: VACUUM, full
    the log                     since each file was written + delta.logRetentionDuration, cut at midnight UTC, and once a
                                later checkpoint is there, as a purge writes one: Delta's own clean-up, at a checkpoint

No date is given where nothing removes a file by itself, and where the log cannot be read.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from audit.erasure.scan.archives import BROKEN, PARQUET, begins_with, not_decoded, unpacked
from audit.erasure.scan.delta_log import CHANGES, TableLog, kind_of, read_log
from audit.erasure.scan.findings import Gathered, masked
from audit.erasure.scan.matcher import Counts, in_column, in_json, in_name, whole_json, without_views
from audit.erasure.scan.results import Checked, ScanResult, Unseen, unseen_location

if TYPE_CHECKING:
    import pyarrow as pa

    from audit.erasure.scan.files import File, Files
    from audit.erasure.scan.search_terms import SearchTerms

__all__ = ["scan_table"]

FILE_RETENTION, LOG_RETENTION = dt.timedelta(days=7), dt.timedelta(days=30)
_FILES_KEPT, _LOG_KEPT = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_BATCH_ROWS = 64 * 1024
_RAW_BYTES = 16 * 1024 * 1024
_OVERLAP_BYTES = 4096
"""Overlap of two reads, so that a value across them is found."""
_OF_THE_LOG = ("log", "checkpoint", "checksum", "compacted log", "temporary copy")


def scan_table(
    files: Files, terms: SearchTerms, *, now: dt.datetime, progress: Callable[[int, int], None] | None = None
) -> ScanResult:
    """Search everything below the address of a table. ``progress`` gets the bytes done and the total.

    The place of a finding is the file. A file that cannot be decoded is reported as unseen, and searched as plain bytes
    where that is possible.
    """
    return _Scan(files, terms, now).run(progress)


class _Scan:
    def __init__(self, files: Files, terms: SearchTerms, now: dt.datetime) -> None:
        self.files, self.terms, self.now = files, terms, now
        self.found, self.unseen = Gathered(), list[Unseen]()
        self.checked: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.log = TableLog()

    def run(self, progress: Callable[[int, int], None] | None) -> ScanResult:
        try:
            files = self._list_files()
        except OSError as error:
            return ScanResult(unseen=(unseen_location(self.files.address, error),))
        self.unseen += [Unseen(self._place(one.place), one.why) for one in self.files.unseen()]
        for name in sorted({*self.files.folders(), *(one.name for one in files), *_parents(files)}):
            if hits := in_name(PurePosixPath(name).name, self.terms):
                self.found.add(self._place(name), "partition name", Counter(hits), clears_on=None)
        done, total = 0, sum(one.size for one in files)
        for one in files:
            kind = kind_of(one.name)
            try:
                self._scan_file(one, kind)
                self.checked[kind] += 1
                self.bytes[kind] += one.size
            except FileNotFoundError:  # VACUUM and the log's clean-up may run at the same time
                pass
            except OSError as error:
                self.unseen.append(unseen_location(self._place(one.name), error))
            done += one.size
            if progress is not None:
                progress(done, total)
        checked = tuple(Checked(kind, count, self.bytes[kind]) for kind, count in sorted(self.checked.items()))
        return ScanResult(self.found.finds(), checked, tuple(dict.fromkeys(self.unseen)))

    def _list_files(self) -> list[File]:
        files = list(self.files.list_files())
        self.log, unseen = read_log(self.files, files)
        self.unseen += unseen
        if self.log.elsewhere:
            why = f"{self.log.elsewhere} files are outside of the table's folder: it is a shallow clone; scan its source too"
            self.unseen.append(Unseen(self.files.address, why))
        if self.log.current.difference(one.name for one in files):  # some were written in the meantime
            files = list(self.files.list_files())
        for name in sorted(self.log.current.difference(one.name for one in files if one.version is None)):
            self.unseen.append(Unseen(self._place(name), "a file of the table is missing"))
        return files

    def _place(self, name: str) -> str:
        return f"{self.files.address}/{masked(name, self.terms)}".rstrip("/")

    # ── why it is there, and when it goes ────────────────────────────────────────────────────────────────────────

    def _why(self, file: File, kind: str) -> tuple[str, dt.date | None]:
        log, name = self.log, file.name
        if file.version is not None:
            return "former version", file.clears_on
        if kind in _OF_THE_LOG:
            kept = log.properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false"
            lasting = kept or not log.known or kind in ("compacted log", "temporary copy")
            after = file.written + log.retention(_LOG_KEPT, LOG_RETENTION)
            return "log entry" if kind == "log" else kind, None if lasting else _day_after(after)
        if not log.known:
            return "unknown file", None
        if name in log.current:
            return "current file", None
        if kind not in ("data", "change data") and not name.startswith(f"{CHANGES}/"):
            return "other file", None
        removed = log.removed_at.get(name)
        clears_on = _day_after((removed or file.written) + log.retention(_FILES_KEPT, FILE_RETENTION))
        if name.startswith(f"{CHANGES}/"):
            return "change file", clears_on
        return "aborted write" if removed is None else "former file", clears_on

    # ── one file ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _scan_file(self, file: File, kind: str) -> None:
        reason, clears_on = self._why(file, kind)

        def add(found: Counts | Iterable[tuple[str, str]], why: str = reason) -> None:
            # For a former version of an object, no other reason applies
            why = reason if reason == "former version" else why
            day = None if why == "deletion vector" else clears_on
            self.found.add(place, why, Counter(found), clears_on=day)

        place, name = self._place(file.name), PurePosixPath(file.name)
        with self.files.open(file) as opened:
            start = begins_with(opened)
            try:
                if start.startswith(PARQUET) or (name.suffix == ".parquet" and start):
                    self._scan_parquet(opened, file.name, reason, add)
                elif kind in _OF_THE_LOG:
                    self._scan_lines(opened, kind, add)
                else:
                    if what := not_decoded(start):
                        self.unseen.append(Unseen(place, f"{what}, which is not decoded"))
                    add(self._scan_raw(unpacked(opened, start)))
            except _Undecoded as error:
                self.unseen.append(Unseen(place, f"cannot be decoded as Parquet ({error})"))
            except FileNotFoundError:
                raise
            except BROKEN as error:
                if isinstance(error, OSError):
                    unseen_location(place, error)
                self.unseen.append(Unseen(place, f"could not be unpacked or read ({type(error).__name__})"))
            else:
                return
            opened.seek(0)
            add(self._scan_raw(opened))

    def _scan_parquet(self, file: BinaryIO, name: str, reason: str, add: Callable[..., None]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        met: set[str] = set()
        try:
            with pq.ParquetFile(file) as opened:
                for batch, hidden in self._batches(opened, name):
                    for column, values in zip(batch.schema.names, batch.columns, strict=True):
                        path = (column.lower(),)
                        for inner, hits in in_column(path, values, self.terms, self.log.called):
                            columns = self.log.columns
                            is_dropped = reason == "current file" and columns is not None and inner not in columns
                            add(hits, "deletion vector" if hidden else "dropped column" if is_dropped else reason)
                            met.update(request for request, _ in hits)
        except (pa.ArrowException, OSError, ValueError, EOFError) as error:
            raise _Undecoded(type(error).__name__) from error
        # The footer has statistics and metadata of writers
        size = file.seek(-8, 2)
        file.seek(-8 - min(size, int.from_bytes(file.read(4), "little")), 2)
        add(pair for pair in self.terms.find(file.read()) if pair[0] not in met)

    def _batches(self, opened: pa.parquet.ParquetFile, name: str) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield batches, with whether a deletion vector hides their rows."""
        import numpy as np
        import pyarrow as pa

        vector = self.log.hidden.get(name)
        at = 0
        for read in opened.iter_batches(_BATCH_ROWS):
            batch = pa.RecordBatch.from_arrays([without_views(one) for one in read.columns], names=read.schema.names)
            if vector is None:
                yield batch, False
                continue
            rows = np.zeros(batch.num_rows, dtype=bool)
            part = vector[at : at + batch.num_rows]
            rows[: len(part)] = part
            at += batch.num_rows
            yield batch.filter(pa.array(~rows)), False
            yield batch.filter(pa.array(rows)), True

    def _scan_lines(self, lines: BinaryIO, kind: str, add: Callable[..., None]) -> None:
        """Search a file of the log. In log entries, actions about files have separate reasons."""
        for line in lines:
            try:
                actions = whole_json(line)
            except (ValueError, RecursionError):
                actions = None
            if not isinstance(actions, dict):
                add(self.terms.find(line))
                continue
            of_files = [
                actions.pop(name)
                for name in ("add", "remove", "cdc")
                if kind == "log" and isinstance(actions.get(name), dict)
            ]
            if actions:
                add(in_json(actions, self.terms, self.log.called))
            for action in of_files:
                add(in_json(action.pop("stats", None), self.terms, self.log.called), "statistics")
                add(in_json(action, self.terms, self.log.called), "partition name")

    def _scan_raw(self, file: BinaryIO) -> Counts:
        hits: set[tuple[str, str]] = set()
        before = b""
        while chunk := file.read(_RAW_BYTES):
            hits.update(self.terms.find(before + chunk))
            before = chunk[-_OVERLAP_BYTES:]
        return Counter(hits)


class _Undecoded(Exception):
    """Has the kind of the error only: its text may quote the file."""


def _parents(files: Iterable[File]) -> Iterator[str]:
    for one in files:
        for parent in PurePosixPath(one.name).parents:
            if parent.name:
                yield parent.as_posix()


def _day_after(moment: dt.datetime) -> dt.date:
    """Return the next day: on the day itself it may be too early."""
    return moment.date() + dt.timedelta(days=1)

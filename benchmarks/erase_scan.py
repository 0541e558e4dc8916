"""What does a scan for people cost, beside reading the files; and does it cost more for a thousand of them than for one?

One Delta table of a million rows (e-mail, name, street, number, amount), of which the people who are looked for are
none: the usual case, in which every byte is looked at and nothing is written down. Timed is ``scan_table`` for one request
and for a thousand, each with an e-mail, a phone number and a customer's number, and, as the limit, pyarrow decoding the
same files without looking. A control first finds somebody who is there.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.files import LocalFiles
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from benchmarks.answer import Answer
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIM_MANY = 1.5
AIM_LIMIT = 10.0
"""Times as long as decoding alone: a guard against a mistake, since no peer does this."""


def measure(lab: Lab) -> Iterator[Answer]:
    rows, many = (100_000, 100) if lab.quick else (1_000_000, 1_000)
    path = _table(lab.folder / "erase-scan", rows)
    files = list(Path(path).glob("*.parquet"))
    now = dt.datetime.now(dt.UTC)
    if not scan_table(LocalFiles(path), _search_terms(1, of="person17"), now=now).finds:
        raise AssertionError("somebody who is there was not found")
    wanted = {1: _search_terms(1, of="nobody"), many: _search_terms(many, of="nobody")}

    def scan(requests: int) -> None:
        found = scan_table(LocalFiles(path), wanted[requests], now=now)
        if found.finds or found.unseen or sum(one.count for one in found.checked if one.what == "data") != len(files):
            raise AssertionError(f"{len(found.finds)} finds, {len(found.unseen)} unseen")

    work: dict[str, Callable[[], None]] = {
        "one": lambda: scan(1),
        "many": lambda: scan(many),
        "decode": lambda: _decode(files),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for counts in lab.rounds(warm_up=1, timed=5):
        for name in lab.shuffled(list(work)):
            began = time.monotonic()
            work[name]()
            if counts:
                seconds[name].append(time.monotonic() - began)
    one, more, decode = (median(seconds[name]) for name in ("one", "many", "decode"))
    megabytes = _decoded_bytes(files) / 1e6
    detail = {
        "rows": rows,
        "requests": many,
        "decoded_megabytes": round(megabytes, 1),
        "seconds": {name: round(median(took), 3) for name, took in seconds.items()},
        "repetitions": len(seconds["one"]),
    }
    yield Answer(
        question=f"erase_scan, {many:,} requests ÷ 1",
        ratio=more / one,
        aim=AIM_MANY,
        better="lower",
        words=f"{more:.2f} s against {one:.2f} s over {megabytes:,.0f} MB decoded",
        detail=detail,
    )
    yield Answer(
        question="erase_scan, ÷ decoding alone",
        ratio=one / decode,
        aim=AIM_LIMIT,
        better="lower",
        words=f"{megabytes / one:,.0f} MB/s of decoded Parquet, {megabytes / decode:,.0f} MB/s without looking",
        detail=detail,
    )


def _search_terms(requests: int, *, of: str) -> SearchTerms:
    return SearchTerms(
        term
        for number in range(requests)
        for term in (
            SearchTerm(f"R-{number}", f"{of}.{number}@example.net" if of == "nobody" else f"{of}@example.org", "email"),
            SearchTerm(f"R-{number}", f"+49 170 {of} {number:07d}", "phone"),
            SearchTerm(f"R-{number}", str(10**12 + number), "customer_id"),
        )
    )


def _table(folder: Path, rows: int) -> str:
    import pyarrow as pa
    from deltalake import write_deltalake

    step = 100_000
    for first in range(0, rows, step):
        ids = range(first, min(first + step, rows))
        batch = pa.table(
            {
                "customer_id": pa.array(ids, pa.int64()),
                "email": [f"person{number}@example.org" for number in ids],
                "name": [f"Name {number * 7919 % 1_000_003} of {number % 977}" for number in ids],
                "street": [f"Street {number * 104_729 % 99_991}, house {number % 211}" for number in ids],
                "amount": pa.array([number * 31 % 100_000 / 100 for number in ids], pa.float64()),
            }
        )
        write_deltalake(str(folder), batch, mode="append")
    return str(folder)


def _decode(files: list[Path]) -> None:
    import pyarrow.parquet as pq

    for file in files:
        with pq.ParquetFile(file) as opened:
            for _ in opened.iter_batches(64 * 1024):
                pass


def _decoded_bytes(files: list[Path]) -> int:
    import pyarrow.parquet as pq

    return sum(int(pq.read_table(file).nbytes) for file in files)

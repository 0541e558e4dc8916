"""Do the answers of ``postgres_copy`` and ``postgres_window`` hold for tables of another shape?

Their table has ten columns and a number as its key. Here both are asked, with the same limits and fewer repetitions, for
tables of 3, 20 and 200 columns, for two texts of 4 KB in a row, and for a key of a number and a text. Each has 100 to
170 MB, about as much as theirs: in a smaller table what does not depend on the rows would decide. A window changes a tenth
of the rows, chosen from all rows, or in one table from the newest fifth, whose keys all lie in one of its four files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from benchmarks.answer import Answer
from benchmarks.lab import Lab, median
from benchmarks.postgres_state import (
    MIXED,
    TABLE,
    Changes,
    Shape,
    State,
    apply_bare,
    connected,
    fresh,
    run_psql,
    windows,
)
from cdf import Step

__all__ = ["SHAPES", "measure"]

AIM = 0.6
KINDS = (
    "cast(pmod({h}, 1000) as int)",
    "concat('name ', pmod({h}, 1000003))",
    "cast(pmod({h}, 100000000) as decimal(18,2))",
    "{h} / 7e17",
    "{h} % 3 = 0",
    "timestamp_micros(1700000000000000 + pmod({h}, 100000000000000))",
    "date_add(date'1970-01-01', cast(pmod({h}, 20000) as int))",
    "if({h} % 2 = 0, null, sha2(cast({h} as string), 256))",
)


def _wide(width: int) -> Shape:
    """``id`` and ``width - 1`` columns of the types in ``KINDS``, in turns."""
    names = tuple(f"c{number}" for number in range(1, width))

    def select(generation: str) -> str:
        values = (
            KINDS[number % len(KINDS)].format(h=f"xxhash64(id, {generation}, {number})") + f" as {name}"
            for number, name in enumerate(names)
        )
        return ", ".join(["id", *values])

    return Shape(("id", *names), select)


def _select_texts(generation: str) -> str:
    texts = (
        f"array_join(transform(sequence(1, 64), one -> sha2(concat_ws(' ', id, {generation}, {number}, one), 256)), '')"
        f" as t{number}"
        for number in range(2)
    )
    return ", ".join(["id", *texts])


def _select_keyed(generation: str) -> str:
    return (
        f"id, cast(pmod(xxhash64(id), 50) as int) as region, md5(cast(id as string)) as code,"
        f" concat('name ', pmod(xxhash64(id, {generation}), 1000003)) as name,"
        f" cast(pmod(xxhash64(id, {generation}), 100000000) as decimal(18,2)) as amount"
    )


SKEWED = "changes of the newest rows"
SHAPES = {
    "3 columns": (3_000_000, _wide(3)),
    "20 columns": (400_000, _wide(20)),
    "200 columns": (40_000, _wide(200)),
    "texts of 4 KB": (20_000, Shape(("id", "t0", "t1"), _select_texts)),
    "key of number and text": (
        1_500_000,
        Shape(("id", "region", "code", "name", "amount"), _select_keyed, key=("region", "code")),
    ),
    SKEWED: (1_000_000, MIXED),
}
"""Rows, and the shape."""


def measure(lab: Lab) -> Iterator[Answer]:
    for name, (full, shape) in SHAPES.items():
        rows = full // 10 if lab.quick else full
        changes = Changes.of(rows // 110 * 11, newest=0.2 if name == SKEWED else 1.0)
        state = windows(lab, f"shape_{name.replace(' ', '_').lower()}", rows, [changes], shape)
        yield from _compare(lab, name, state, rows, changes.total)


def _compare(lab: Lab, name: str, state: State, rows: int, changes: int) -> Iterator[Answer]:
    # `postgres_copy` copies the skewed table
    variants = ("window", "bare") if name == SKEWED else ("window", "bare", "copy", "psql")
    file = lab.folder / "shape.binary"
    if "psql" in variants:
        run_psql(lab, state.database, f"\\copy {TABLE} to '{file}' (format binary)")
    with connected(lab, state.database) as connection:
        columns = connection.execute(
            "select string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum)"
            " from pg_attribute where attrelid = %s::regclass and attnum > 0",
            [TABLE],
        ).fetchone()
    assert columns is not None
    commands = (
        f"create table {TABLE} ({columns[0]})",
        f"\\copy {TABLE} from '{file}' (format binary)",
        f"alter table {TABLE} add primary key ({', '.join(state.shape.key)})",
    )
    seconds: dict[str, list[float]] = {one: [] for one in variants}
    for counts in lab.rounds(warm_up=2, timed=5):
        for variant in lab.shuffled(list(seconds)):
            took = _time(lab, state, variant, commands)
            if counts:
                seconds[variant].append(took)
    file.unlink(missing_ok=True)
    window, bare, *copies = (median(took) for took in seconds.values())
    detail = {"rows": rows, "columns": len(state.shape.names), "repetitions": len(seconds["window"])}
    if copies:
        copy, psql = copies
        yield Answer(
            question=f"shapes, {name}: copy",
            ratio=psql / copy,
            aim=AIM,
            better="higher",
            words=f"{rows:,} rows in {copy:.2f} s, psql \\copy and key {psql:.2f} s",
            detail={**detail, "seconds": [round(copy, 3), round(psql, 3)]},
        )
    yield Answer(
        question=f"shapes, {name}: window",
        ratio=bare / window,
        aim=AIM,
        better="higher",
        words=f"{changes:,} changes in {window:.2f} s, bare statements {bare:.2f} s",
        detail={**detail, "changes": changes, "seconds": [round(window, 3), round(bare, 3)]},
    )


def _time(lab: Lab, state: State, variant: str, commands: Sequence[str]) -> float:
    is_copy = variant in ("copy", "psql")
    with ExitStack() as open_:
        database = open_.enter_context(fresh(lab) if is_copy else fresh(lab, template=state.database))
        done: list[Step] = []
        began = time.monotonic()
        if variant == "psql":
            run_psql(lab, database, *commands)
        elif variant == "bare":
            with connected(lab, database) as connection:
                seconds = apply_bare(connection, [1], state.shape)
            state.check(database, 1)
            return seconds
        else:
            state.pipeline(database).run(until=0 if is_copy else 1, progress=done.append)
        seconds = time.monotonic() - began
        state.check(database, 0 if is_copy else 1)
        # As in the other questions: of a copy the whole run, of a window what the step reports
        return seconds if is_copy else sum(done[0].applied.seconds.values())

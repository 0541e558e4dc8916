"""The hash of a row is the same in PostgreSQL and of Arrow's rows, and another one after the smallest change of a value."""

from __future__ import annotations

import itertools
import random
import secrets
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from connectors.postgres.verify.row_hash import LONG, RowHash, can_hash
from connectors.postgres.verify.row_hash_sql import row_hash_sql
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_seed import examples
from tests.integration.random_types import BINARY, CHAR, STRING, VARCHAR, WHOLE, Kind, decimals, plain_kinds

ROWS = 12
TYPES = {
    "tinyint": "smallint",
    "int": "integer",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
Columns = list[tuple[Kind, list[Any]]]


def type_of(kind: Kind) -> str:
    return TYPES.get(kind.ddl, kind.ddl.replace("decimal", "numeric"))


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    kinds = [kind for kind in draw(plain_kinds()) if kind not in (CHAR, VARCHAR)] + [draw(decimals())]
    return [(kind, draw(st.lists(st.none() | kind.values, min_size=ROWS, max_size=ROWS))) for kind in kinds]


def stored(pg: Pg, columns: Columns) -> pa.RecordBatch:
    """The rows, which PostgreSQL now has in ``t`` as well."""
    arrays = [pa.array(values, kind.arrow) for kind, values in columns]
    names = [f"c{number}" for number in range(len(columns))]
    listed = ", ".join(f"{name} {type_of(kind)}" for name, (kind, _) in zip(names, columns, strict=True))
    pg.query(f"drop table if exists t; create table t (row integer, {listed})")
    wire = [array.cast(pa.int16()) if array.type == pa.int8() else array for array in arrays]
    table = pa.table([pa.array(range(len(arrays[0])), pa.int32()), *wire], ["row", *names])
    with dbapi.connect(pg.dsn) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("t", table, mode="append", db_schema_name=pg.schema)
        connection.commit()
    return pa.RecordBatch.from_arrays(arrays, names)


def in_postgres(pg: Pg, form: RowHash, names: list[str]) -> list[int]:
    hashed = row_hash_sql(form, list(map(sql.Identifier, names)))
    return [value for (value,) in pg.connection.execute(sql.SQL("select {} from t order by row").format(hashed))]


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck), deadline=None)
@given(columns=tables(), seed=st.integers(1, 2**63 - 1), first=st.integers(0, ROWS - 1))
def test_both_sides_compute_the_same(pg: Pg, columns: Columns, seed: int, first: int) -> None:
    kinds = tuple(type_of(kind) for kind, _ in columns)
    assert all(map(can_hash, kinds))
    batch, form = stored(pg, columns), RowHash(kinds, seed)
    expected = in_postgres(pg, form, batch.schema.names)
    assert form.of_batch(batch).tolist() == expected
    assert form.of_batch(batch.slice(first)).tolist() == expected[first:]
    for number, (kind, _) in enumerate(columns):
        one = RowHash((kinds[number],), seed)
        name = f"c{number}"
        assert one.of_batch(batch.select([name])).tolist() == in_postgres(pg, one, [name]), kind.ddl


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck), deadline=None)
@given(table=tables(), seed=st.integers(1, 2**63 - 1), chance=st.randoms(use_true_random=False))
def test_different_rows_have_different_hashes(table: Columns, seed: int, chance: random.Random) -> None:
    """Rows of any two columns, with each value of the one beside each value of the other."""
    (one, ones), (other, others) = chance.sample(table, 2)
    pairs = list(itertools.product(ones, others))
    arrays = [pa.array([pair[0] for pair in pairs], one.arrow), pa.array([pair[1] for pair in pairs], other.arrow)]
    form = RowHash((type_of(one), type_of(other)), seed)
    hashes = form.of_batch(pa.RecordBatch.from_arrays(arrays, ["a", "b"])).tolist()
    assert len(set(hashes)) >= len({repr(pair) for pair in pairs})  # there are several NaNs


@pytest.mark.parametrize("text", [True, False])
def test_long_values_are_hashed_in_full(pg: Pg, text: bool) -> None:
    """Their MD5 is, with a salt: a target that stores MD5s in place of long values is different."""
    kind = STRING if text else BINARY
    long = ["x" * LONG, "x" * (LONG + 1), "x" * LONG + "y", "ü" * LONG, "", None, "x" * 100_000, "x" * 100_001]
    values = long if text else [None if value is None else value.encode() for value in long]
    batch, form = stored(pg, [(kind, values)]), RowHash((type_of(kind),), secrets.randbelow(2**62) + 1)
    before = in_postgres(pg, form, ["c0"])
    assert form.of_batch(batch).tolist() == before
    assert len(set(before)) == len(before)
    digest = "md5(c0)" if text else "decode(md5(c0), 'hex')"
    pg.query(f"update t set c0 = {digest} where octet_length(c0) > {LONG}")
    after = in_postgres(pg, form, ["c0"])
    assert [one == two for one, two in zip(before, after, strict=True)] == [
        value is None or len(value.encode()) <= LONG for value in long
    ]


def test_rows_of_every_length(pg: Pg) -> None:
    """A row is hashed in blocks of 12 bytes; the last one has from 0 to 11 bytes of the row."""
    lengths = [*range(37), *range(LONG - 13, LONG + 1)]
    random.Random(1).shuffle(lengths)
    values = [b"\xff" * length for length in lengths]
    batch, form = stored(pg, [(BINARY, values)]), RowHash(("bytea",), 2**63 - 1)
    assert form.of_batch(batch).tolist() == in_postgres(pg, form, ["c0"])


def test_sums_see_rows_that_swap_values(pg: Pg) -> None:
    """A sum of hashes of single values would not."""
    columns = [(WHOLE[2], [1, 2]), (WHOLE[2], [3, 4])]
    stored(pg, columns)
    form = RowHash((type_of(WHOLE[2]),) * 2, 5)
    before = sum(in_postgres(pg, form, ["c0", "c1"]))
    pg.query("update t set c1 = 7 - c1")
    assert sum(in_postgres(pg, form, ["c0", "c1"])) != before


def test_no_rows_and_times_before_the_calendar(pg: Pg) -> None:
    form = RowHash(("date", "timestamp without time zone"), 1)
    types = [pa.date32(), pa.timestamp("us")]
    assert form.of_batch(pa.RecordBatch.from_arrays([pa.array([], kind) for kind in types], ["a", "b"])).tolist() == []
    for day, moment in ((-(2**31), 0), (0, -(2**63))):
        arrays = [pa.array([day], types[0]), pa.array([moment], types[1])]
        with pytest.raises(ValueError, match="calendar"):
            form.of_batch(pa.RecordBatch.from_arrays(arrays, ["a", "b"]))


# The second and the fourth value have more digits than the type allows
NO_DECIMALS = pa.Array.from_buffers(
    pa.decimal128(9, 2), 4, [None, pa.py_buffer((bytes(16) + b"\xff" * 15 + b"\x7f") * 2)]
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", pa.array(["one", "two", "", "x" * LONG * 2])),
        ("text", pa.array(["x" * LONG * 2, "y" * LONG * 2, "", "z"])),
        ("bytea", pa.array([b"one", b"two", b"", b"x" * LONG * 2])),
        ("numeric(9,2)", pa.array([Decimal("12.30"), Decimal("-45.06"), Decimal("0.00"), None], pa.decimal128(9, 2))),
        ("numeric(9,2)", NO_DECIMALS),
        ("bigint", pa.array([1, 2, 3, -4])),
        ("smallint", pa.array([1, 2, 3, -4], pa.int8())),
        ("boolean", pa.array([True, True, False, True])),
        ("date", pa.array([1, 2, 3, -4], pa.date32())),
        ("date", pa.array([1, -(2**31), 3, -(2**31)], pa.date32())),
        ("timestamp without time zone", pa.array([1, -(2**63), 3, -(2**63)], pa.timestamp("us"))),
    ],
)
def test_bytes_that_a_null_hides_do_not_matter(kind: str, values: pa.Array) -> None:
    """Arrow leaves it open what the buffers hold in the place of a null."""
    present = pa.py_buffer(bytes([0b0101]))
    hiding = pa.Array.from_buffers(values.type, len(values), [present, *values.buffers()[1:]])
    plain = pa.array([values[0].as_py(), None, values[2].as_py(), None], values.type)
    form = RowHash((kind,), 9)
    for first in (0, 1):
        found, expected = (
            form.of_batch(pa.RecordBatch.from_arrays([one.slice(first)], ["a"])).tolist() for one in (hiding, plain)
        )
        assert found == expected


@pytest.mark.parametrize("kind", ["jsonb", "integer[]", "numeric", "character varying(9)", "", "uuid"])
def test_values_of_other_types_are_not_hashed(kind: str) -> None:
    assert not can_hash(kind)


def test_infinity_and_other_numbers_of_the_target_are_different(pg: Pg) -> None:
    form = RowHash(("numeric(9,2)",), 3)
    kind = Kind("decimal(9,2)", pa.decimal128(9, 2), st.none(), None, lambda *_: True)
    stored(pg, [(kind, [Decimal("0.00"), Decimal("0.01")])])
    before = in_postgres(pg, form, ["c0"])
    pg.query("update t set c0 = 'NaN'")
    assert not set(in_postgres(pg, form, ["c0"])) & set(before)

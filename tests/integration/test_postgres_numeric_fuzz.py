"""ADBC encodes NUMERIC digit by digit, in every precision and scale, alone and in arrays.

Its releases before 1.13 lost groups of zeros without an error: where the scale is no multiple of 4, where the integer part
is a multiple of 1e9, and for integers put into a numeric column. No Spark here: Arrow, ADBC and the server, which prints
what it holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

from tests.fixtures.fix_postgres import Pg

PRECISIONS = range(1, 39)
ROWS = 150
"""Of each of the 779 pairs of precision and scale, alone and once more in an array: 233,700 values."""


def decimal(unscaled: int, scale: int) -> Decimal:
    """Exact: no context rounds it to 28 digits."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def edges(precision: int, scale: int) -> Iterator[int]:
    """Unscaled values at which an encoder in groups of four digits, or of nine, may stumble."""
    one, largest = 10**scale, 10**precision - 1
    for magnitude in (0, 1, one, largest, largest // 2, largest - largest % 10_000, largest - largest % 10**9):
        yield from (magnitude, -magnitude)
    for step in (10**4, 10**8, 10**9, 10**12, 10**16, 10**18, 10**27):
        for factor in (1, 3, 9_999):
            yield from (step * factor * one, step * factor, step * factor * one + 1, -(step * factor * one) - one // 10)


def values(chance: random.Random, precision: int, scale: int) -> list[Decimal]:
    fitting = [edge for edge in dict.fromkeys(edges(precision, scale)) if abs(edge) < 10**precision]
    chosen = chance.sample(fitting, min(len(fitting), ROWS // 2))
    while len(chosen) < ROWS:
        unscaled = chance.randrange(10 ** chance.randint(1, precision))
        if chance.random() < 0.6:
            unscaled -= unscaled % 10 ** chance.randint(
                0, precision - 1
            )  # trailing zeros, in the fraction or before it
        if chance.random() < 0.3:
            unscaled %= 10 ** chance.randint(1, precision)  # zeros at the front
        chosen.append(chance.choice((1, -1)) * unscaled)
    return [decimal(unscaled, scale) for unscaled in chosen]


def mismatches(pg: Pg, table: str, columns: dict[str, list[Decimal]]) -> list[str]:
    """Columns of ``table`` and of its array twin whose text is not the text of what was sent."""
    names = list(columns)
    alone = pg.query(f"select {', '.join(f'{name}::text' for name in names)} from {table} order by row")
    ((*arrays,),) = pg.query(f"select {', '.join(f'{name}::text[]' for name in names)} from {table}_arrays")
    found = []
    for number, name in enumerate(names):
        expected = [format(value, "f") for value in columns[name]]
        found += [name for row, text in zip(alone, expected, strict=True) if row[number] != text]
        found += [f"{name}[]" for held, text in zip(arrays[number], expected, strict=True) if held != text]
    return found


def copied(connection: dbapi.Connection, pg: Pg, table: str, rows: pa.Table) -> None:
    with connection.cursor() as cursor:
        cursor.adbc_ingest(table, rows, mode="append", db_schema_name=pg.schema)
    connection.commit()


def sent(
    connection: dbapi.Connection, pg: Pg, precision: int, scales: Sequence[int], seed: int
) -> dict[str, list[Decimal]]:
    chance = random.Random(f"{seed} {precision}")
    kinds = {f"s{scale}": pa.decimal128(precision, scale) for scale in scales}
    columns = {f"s{scale}": values(chance, precision, scale) for scale in scales}
    for table, suffix in ((f"p{precision}", ""), (f"p{precision}_arrays", "[]")):
        listed = ", ".join(f"s{scale} numeric({precision},{scale}){suffix}" for scale in scales)
        pg.query(f"create unlogged table {table} (row integer, {listed})")
    numbers = pa.array(range(ROWS), pa.int32())
    alone = {name: pa.array(columns[name], kind) for name, kind in kinds.items()}
    arrays = {name: pa.array([columns[name]], pa.list_(kind)) for name, kind in kinds.items()}
    copied(connection, pg, f"p{precision}", pa.table({"row": numbers, **alone}))
    copied(connection, pg, f"p{precision}_arrays", pa.table({"row": numbers[:1], **arrays}))
    return columns


@pytest.fixture
def connection(pg: Pg) -> Iterator[dbapi.Connection]:
    with dbapi.connect(pg.dsn) as connection:
        yield connection


def test_every_precision_and_scale_arrives_digit_by_digit(pg: Pg, connection: dbapi.Connection, seed: int) -> None:
    compared = 0
    for precision in PRECISIONS:
        columns = sent(connection, pg, precision, range(precision + 1), seed)
        assert mismatches(pg, f"p{precision}", columns) == [], f"numeric({precision}, …)"
        compared += 2 * sum(map(len, columns.values()))
    assert compared == 2 * 779 * ROWS


def test_a_single_wrong_digit_would_be_seen(pg: Pg, connection: dbapi.Connection, seed: int) -> None:
    columns = sent(connection, pg, 38, range(0, 39, 5), seed)
    assert mismatches(pg, "p38", columns) == []
    pg.query("update p38 set s35 = case when s35 = 0 then 1e-35 else 0 end where row = 7")
    assert mismatches(pg, "p38", columns) == ["s35"]
    pg.query("update p38_arrays set s5[8] = case when s5[8] = 0 then 0.00001 else 0 end, s10[9] = null")
    assert mismatches(pg, "p38", columns) == ["s5[]", "s10[]", "s35"]


@pytest.mark.parametrize("kind", [pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_integers_arrive_in_a_numeric_column(
    pg: Pg, connection: dbapi.Connection, seed: int, kind: pa.DataType
) -> None:
    chance, bits = random.Random(seed), kind.bit_width - 1
    powers = [10**digits for digits in range(19) if 10**digits < 2**bits]
    numbers = [
        0,
        2**bits - 1,
        -(2**bits),
        *powers,
        *(-power for power in powers),
        *(9 * power for power in powers[:-1]),
    ]
    numbers += [chance.randrange(-(2**bits), 2**bits) for _ in range(2_000)]
    numbers += [number - number % chance.choice(powers) for number in numbers if number >= 0]
    pg.query("create unlogged table integers (row integer, plain numeric, exact numeric(38,4))")
    arrow = pa.array(numbers, kind)
    rows = pa.table({"row": pa.array(range(len(numbers)), pa.int32()), "plain": arrow, "exact": arrow})
    copied(connection, pg, "integers", rows)
    found = pg.query("select plain::text, exact::text from integers order by row")
    assert found == [(str(number), f"{number}.0000") for number in numbers]

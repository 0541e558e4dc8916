"""Values stay in their columns whatever order a file has them in."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdf.source.parquet_rows import FileRefused, decode_file

# Text that could be read as a number: a swap of columns must not pass as a conversion
ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "code": pa.array([7, 8], pa.int32()),
        "name": ["3", "4"],
        "note": ["5", None],
    }
)


def written(names: tuple[str, ...]) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pq.write_table(ROWS.select(list(names)), out)
    return out.getvalue()


@pytest.mark.parametrize("in_file", list(itertools.permutations(ROWS.column_names)))
def test_columns_are_found_by_name(in_file: tuple[str, ...]) -> None:
    content = written(in_file)
    for count in range(1, 5):
        for wanted in itertools.permutations(ROWS.column_names, count):
            types = [ROWS.schema.field(name).type for name in wanted]
            found = pa.Table.from_batches(decode_file("", content, wanted, types, 10))
            assert found.equals(ROWS.select(list(wanted)))


def test_a_column_of_another_type_is_refused() -> None:
    content = written(("id", "name"))
    with pytest.raises(FileRefused):
        list(decode_file("", content, ["name"], [pa.int64()], 10))
    with pytest.raises(FileRefused):
        list(decode_file("", content, ["id"], [pa.string()], 10))

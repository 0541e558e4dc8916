"""Short identifiers as whole cells of the lines that COPY writes."""

from __future__ import annotations

import json

from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from connectors.postgres.column_mapping import Columns
from connectors.postgres.conversions import ColumnType
from connectors.postgres.erasure.cell_matcher import Cells

CELLS = Cells(
    SearchTerms([SearchTerm("r1", "4711", "number"), SearchTerm("r2", "a\\b", "code")]),
    Columns(rename={"number": "nr"}),
)
HIT = {("r1", "value")}


def found(**types: str) -> dict[str, ColumnType]:
    return {name: ColumnType(kind, kind) for name, kind in types.items()}


def line(*cells: str | None) -> bytes:
    written = [r"\N" if cell is None else cell.replace("\\", r"\\").replace("\t", r"\t") for cell in cells]
    return "\t".join(written).encode() + b"\n"


def test_columns_go_by_the_names_of_the_source() -> None:
    short = CELLS.of_table(found(id="bigint", nr="numeric(9,2)", number="text", code="text"))
    assert short(line("4711", "4711.00", "x", None)) == HIT
    assert short(line("4711", "4712.00", "a\t4711", "a\\b")) == {("r2", "value")}
    assert short(line("4711", None, None, None)) == set()


def test_what_is_nested_goes_by_its_own_names() -> None:
    short = CELLS.of_table(found(info="jsonb", nr="bigint[]"))
    assert short(line(json.dumps({"who": [{"number": 4711.0, "text": 'a"\t'}]}), "{}")) == HIT
    assert short(line(json.dumps({"nr": 4711}), "{1,4711,NULL}")) == HIT
    assert short(line(json.dumps({"nr": 4711, "4711": "4711"}), None)) == set()


def test_letters_and_numbered_columns() -> None:
    letters = CELLS.of_letters(found(id="bigint", key="text", row="text"))
    assert letters(line("4711", '{"id":"4711"}', None)) == set()
    assert letters(line("1", '{"nr":"4711"}', None)) == HIT
    assert letters(line("1", '{"id":"1"}', json.dumps({"nr": "1", "info": json.dumps({"number": 4711})}))) == HIT
    numbered = CELLS.of_numbered(found(_attempt="text", c0="bigint", c1="jsonb"))
    assert numbered(line("4711", "1", '{"id":4711}')) == set()
    assert numbered(line("x", "4711", None)) == HIT

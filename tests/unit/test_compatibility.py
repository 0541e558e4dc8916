"""The table of what was tested on each pair of Spark and Delta."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spark_pairs import PAIRS
from tools.compat.parts import PARTS, Outcome, read_limits, read_outcomes, write_outcomes
from tools.reference import compatibility

ROOT = Path(__file__).parents[2]


def outcome(spark: str, *, failed: int = 0) -> Outcome:
    return Outcome(spark, PAIRS[0].delta, 7, failed, 1, "2026-01-01")


def test_what_was_not_run_is_said_to_be_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.json"
    pair = PAIRS[0]
    kept = {pair.line: {"smoke": outcome(pair.spark), "S3": outcome("4.2.99"), "Kafka": outcome(pair.spark, failed=2)}}
    write_outcomes(kept, file)
    assert read_outcomes(file) == kept
    monkeypatch.setattr(compatibility, "read_outcomes", lambda: read_outcomes(file))
    row = next(
        line for line in compatibility.compatibility_page().splitlines() if line.startswith(f"| Spark {pair.spark}")
    )
    cells = dict(zip(PARTS, [cell.strip() for cell in row.split("|")[2:-1]], strict=True))
    assert cells["smoke"] == "7 pass (2026-01-01)"
    assert cells["Kafka"] == "7 pass, 2 FAIL (2026-01-01)"
    assert cells["S3"] == "not run", "the result is of another release"
    assert cells["conformance"] == "not run"


def test_the_parts_and_the_limits_name_what_exists() -> None:
    assert [path for paths in PARTS.values() for path in paths if not (ROOT / path).exists()] == []
    left_out = [
        test.partition("::")[0] for limits in read_limits().values() for tests in limits.values() for test in tests
    ]
    assert [file for file in left_out if not (ROOT / file).exists()] == []
    assert set(read_limits()) <= {pair.line for pair in PAIRS}

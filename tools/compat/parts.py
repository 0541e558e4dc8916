"""What ``make compat`` runs on a pair, and the results that it keeps for ``docs/reference/compatibility.md``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["PARTS", "Outcome", "read_limits", "read_outcomes", "write_outcomes"]

RESULTS = Path(__file__).parent / "results.json"
LIMITS = Path(__file__).parent / "limits.toml"

PARTS: dict[str, tuple[str, ...]] = {
    "smoke": ("tests/integration/test_three_sinks.py", "tests/integration/test_newest_tables.py"),
    "conformance": ("tests/contract",),
    "PostgreSQL": ("tests/acceptance/test_commands.py", "tests/integration/test_postgres_types.py"),
    "Kafka": ("tests/acceptance/test_kafka.py", "tests/integration/test_kafka_pipeline.py"),
    "audit trail": ("tests/acceptance/test_trail.py", "tests/integration/test_trail_types.py"),
    "S3": ("tests/integration/test_s3_source.py", "tests/integration/test_trail_s3.py"),
}
"""Each part of the table, and its tests. With QUICK=1 only the first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The tests of one part on one pair."""

    spark: str
    delta: str
    passed: int
    failed: int
    skipped: int
    date: str

    def __str__(self) -> str:
        return f"{self.passed} pass" + (f", {self.failed} FAIL" if self.failed else "")


def read_outcomes(file: Path = RESULTS) -> dict[str, dict[str, Outcome]]:
    """By Spark line, then by part. A part that is not here was not run."""
    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return {line: {part: Outcome(**one) for part, one in parts.items()} for line, parts in stored.items()}


def write_outcomes(outcomes: dict[str, dict[str, Outcome]], file: Path = RESULTS) -> None:
    stored = {line: {part: asdict(one) for part, one in parts.items()} for line, parts in sorted(outcomes.items())}
    file.write_text(json.dumps(stored, indent=1) + "\n")


def read_limits(file: Path = LIMITS) -> dict[str, dict[str, list[str]]]:
    """By Spark line: what a user cannot do there, with the tests that need it and are left out."""
    return {} if not file.exists() else tomllib.loads(file.read_text())

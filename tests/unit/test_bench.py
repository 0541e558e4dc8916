"""The table and the JSON of ``make bench`` have their form, whatever the figures. The questions here are made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks.answer import Answer
from benchmarks.lab import Lab
from benchmarks.postgres_state import Changes


def fast(lab: Lab) -> Iterator[Answer]:
    yield Answer("fast, 1 row", 1.234567, 2.0, "lower", "0.1 s against 0.2 s", {"seconds": 0.1, "quick": lab.quick})
    yield Answer("fast, 2 rows", 2.5, 2.0, "lower", "0.5 s against 0.2 s")


def full(lab: Lab) -> Iterator[Answer]:
    yield Answer("full", 0.9, 0.8, "higher", "90 of 100")


def worse(lab: Lab) -> Iterator[Answer]:
    yield Answer("full", 0.7, 0.8, "higher", "70 of 100")


def broken(lab: Lab) -> Iterator[Answer]:
    yield Answer("half", 1.0, 1.0, "lower", "measured before it broke")
    raise AssertionError("the target differs")


def stopped(lab: Lab) -> Iterator[Answer]:
    yield Answer("half", 1.0, 1.0, "lower", "measured before Ctrl-C")
    raise KeyboardInterrupt


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(bench, "QUESTIONS", {"fast": fast, "full": full})
    return tmp_path / "results"


def latest(results: Path, name: str = "latest.json") -> dict[str, dict[str, Any]]:
    found = json.loads((results / name).read_text())
    assert isinstance(found, list)
    return {one["question"]: one for one in found}


def test_the_table_and_the_file(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main({}) == 0  # also with an aim that is not met
    assert capsys.readouterr().out.splitlines() == [
        "question      ratio    aim  met",
        "fast, 1 row    1.23    ≤ 2  yes  0.1 s against 0.2 s",
        "fast, 2 rows   2.50    ≤ 2  NO   0.5 s against 0.2 s",
        "full           0.90  ≥ 0.8  yes  90 of 100",
        "",
        "2 of 3 aims are met",
    ]
    found = latest(results)
    assert list(found) == ["fast, 1 row", "fast, 2 rows", "full"]
    first = found["fast, 1 row"]
    assert {name: first[name] for name in ("question", "ratio", "aim", "better", "met")} == {
        "question": "fast, 1 row", "ratio": 1.235, "aim": 2.0, "better": "lower", "met": True,
    }  # fmt: skip
    assert first["detail"] == {"words": "0.1 s against 0.2 s", "seconds": 0.1, "quick": False}
    assert not found["fast, 2 rows"]["met"]
    assert {"cores", "memory_gb"} <= set(first["machine"])
    assert {"python", "java", "postgres", "pyspark", "delta-spark"} <= set(first["versions"])


def test_one_question_keeps_the_answers_to_the_others(results: Path) -> None:
    bench.main({})
    bench.main({"ONLY": "full"})
    found = latest(results)
    assert set(found) == {"fast, 1 row", "fast, 2 rows", "full"}
    assert found["full"]["measured_at"] >= found["fast, 1 row"]["measured_at"]


def test_an_answer_keeps_the_ratio_that_it_replaces(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.main({})
    first = latest(results)["full"]
    assert "previous" not in first
    monkeypatch.setattr(bench, "QUESTIONS", {"full": worse})
    bench.main({})
    found = latest(results)["full"]
    assert (found["ratio"], found["previous"]) == (0.7, {"ratio": 0.9, "measured_at": first["measured_at"]})


def test_each_answer_is_kept_before_the_next_is_measured(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[set[str]] = []

    def look(lab: Lab) -> Iterator[Answer]:
        kept.append(set(latest(results)))
        yield from full(lab)

    monkeypatch.setattr(bench, "QUESTIONS", {"fast": fast, "look": look})
    bench.main({})
    assert kept == [{"fast, 1 row", "fast, 2 rows"}]


def test_quick_figures_are_kept_apart(results: Path) -> None:
    assert bench.main({"QUICK": "1", "ONLY": "fast"}) == 0
    assert latest(results, "quick.json")["fast, 1 row"]["detail"]["quick"]
    assert not (results / "latest.json").exists()


@pytest.mark.parametrize(("question", "code", "others"), [(broken, 1, {"full"}), (stopped, 130, set())])
def test_what_was_measured_is_kept(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    question: Any,
    code: int,
    others: set[str],
) -> None:
    monkeypatch.setattr(bench, "QUESTIONS", {"half": question, "full": full})
    assert bench.main({}) == code
    assert set(latest(results)) == {"half", *others}
    assert "measured before" in capsys.readouterr().out


def test_a_question_that_does_not_exist(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main({"ONLY": "fast,slow"}) == 2
    assert "no such question: slow" in capsys.readouterr().err
    assert not results.exists()


def test_every_question_is_described() -> None:
    described = Path(bench.__file__).with_name("README.md").read_text()
    assert [name for name in bench.QUESTIONS if f"| `{name}" not in described] == []


def test_the_mix_of_changes() -> None:
    assert Changes.of(110_000) == Changes(updates=80_000, inserts=20_000, deletes=10_000)
    assert all(Changes.of(total).total == total for total in (11, 100, 2_200, 99_999))

"""What users read about speed says what the results say."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks import report

BETTER = {"question": "kafka_lanes", "ratio": 2.0, "aim": 1.0, "better": "higher", "met": True}
WORSE = {"question": "history", "ratio": 3.0, "aim": 1.0, "better": "lower", "met": False}


def _answer(one: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**one, "detail": {"words": "1 s | 2 s", "cold_seconds": [9.12, 3]}, "measured_at": "2026-11-27T23:10:04Z"}


def _bars(*answers: Mapping[str, Any]) -> list[Mapping[str, str]]:
    chart = ET.fromstring(report.build_chart([_answer(one) for one in answers]))
    return [one.attrib for one in chart if one.get("class") in ("met", "missed")]


def test_a_bar_is_on_the_side_of_its_answer_and_as_long_as_the_factor() -> None:
    better, worse = _bars(BETTER, WORSE)
    middle = float(better["x"])
    assert (better["class"], worse["class"]) == ("met", "missed")
    assert float(worse["x"]) + float(worse["width"]) == pytest.approx(middle, abs=0.2)
    assert float(worse["width"]) / float(better["width"]) == pytest.approx(1.585, abs=0.01)  # log 3 ÷ log 2


def test_a_factor_beyond_the_chart_ends_at_its_edge() -> None:
    [longest] = _bars({**BETTER, "ratio": report.LARGEST})
    [longer] = _bars({**BETTER, "ratio": 100.0})
    assert longer["width"] == longest["width"]


def test_the_page_has_each_answer_under_its_heading() -> None:
    previous = {"previous": {"ratio": 1.94, "measured_at": "2026-11-20T10:00:00Z"}}
    page = report.build_page([_answer({**BETTER, **previous}), _answer(WORSE)])
    assert "1 of 2 aims are met" in page
    assert (
        "| `kafka_lanes` | 2.00 | ≥ 1 | yes | 1 s \\| 2 s | 9.1 s, 3.0 s | 2026-11-27 | 1.94 (2026-11-20) |"
        in page.partition("## Kafka")[2]
    )
    assert "| `history` | 3.00 | ≤ 1 | **no** |" in page.partition("## Commands, history and storage")[2]


def test_the_paragraph_replaces_the_earlier_one() -> None:
    answers = json.loads(report.RESULTS.read_text())
    once = report.build_all(answers, f"before\n{report.BEGIN}old\n{report.END}after\n")[report.README]
    assert once == f"before\n{report.BEGIN}{report.build_paragraph(answers)}{report.END}after\n"
    assert report.build_all(answers, once)[report.README] == once

"""What a question gives back, and how answers are shown and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Answer", "keep", "show"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One ratio of two things that were measured in the same run, held against an aim."""

    question: str
    ratio: float
    aim: float
    better: Literal["higher", "lower"]
    words: str
    """The figures behind the ratio in a few words; they are for information, the ratio counts."""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        return self.ratio <= self.aim if self.better == "lower" else self.ratio >= self.aim

    def to_dict(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "ratio": round(self.ratio, 3),
            "aim": self.aim,
            "better": self.better,
            "met": self.met,
            "detail": {"words": self.words, **self.detail},
        }


def show(answers: Sequence[Answer]) -> str:
    """The table, and how many aims are met."""
    rows = [("question", "ratio", "aim", "met", "")]
    for one in answers:
        sign = "≤" if one.better == "lower" else "≥"
        rows.append((one.question, f"{one.ratio:.2f}", f"{sign} {one.aim:g}", "yes" if one.met else "NO", one.words))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{question:<{widths[0]}}  {ratio:>{widths[1]}}  {aim:>{widths[2]}}  {met:<{widths[3]}}  {words}".rstrip()
        for question, ratio, aim, met, words in rows
    ]
    return "\n".join([*lines, "", f"{sum(one.met for one in answers)} of {len(answers)} aims are met"])


def keep(answer: Answer, file: Path, conditions: Mapping[str, Any]) -> None:
    """Write the answer with the ``conditions`` it was measured under. One to the same question is replaced, and leaves its
    ratio and its time in ``previous``; those to other questions stay in the file."""
    kept = {one["question"]: one for one in json.loads(file.read_text())} if file.exists() else {}
    before = kept.get(answer.question)
    previous = {"previous": {name: before[name] for name in ("ratio", "measured_at")}} if before else {}
    kept[answer.question] = {**answer.to_dict(), **conditions, **previous}
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(".tmp")
    written.write_text(json.dumps(list(kept.values()), indent=2, ensure_ascii=False) + "\n")
    written.replace(file)

"""Writes what users read about speed from the answers: a page with its chart, and the paragraph of the README.

``python -m benchmarks.report`` writes them from ``benchmarks/results/latest.json``; ``--check`` fails where they differ.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["build_chart", "build_page", "build_paragraph", "write"]

Stored = Mapping[str, Any]
"""One answer, as in ``latest.json``."""

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"
PAGE, CHART, README = "docs/reference/speed.md", "docs/reference/speed.svg", "README.md"
BEGIN, END = "<!-- speed: written by benchmarks.report -->\n", "<!-- /speed -->\n"

GROUPS = (
    ("PostgreSQL", ("postgres", "freshness", "shapes", "small_windows", "large_windows")),
    ("Kafka", ("kafka",)),
    ("Audit trail", ("audit",)),
    ("Erasure and keys", ("erase", "key_registry")),
    ("Commands, history and storage", ("",)),
)
"""A heading, and how the names of its questions begin; the first that fits counts."""

WIDTH, ROW, LABELS, VALUES = 900, 22, 330, 150
"""Pixels: of the chart, of a row, of the names on the left, of the figures on the right."""
LARGEST = 8.0
"""A bar ends at this factor; the figure beside it is exact."""

_STYLE = """
  svg {font: 13px system-ui, sans-serif; --line: #8b949e}
  svg {--text: #1f2328; --page: #ffffff; --met: #1a7f37; --missed: #bc4c00}
  @media (prefers-color-scheme: dark) {svg {--text: #e6edf3; --page: #0d1117; --met: #3fb950; --missed: #f0883e}}
  text {fill: var(--text)} .page {fill: var(--page)} .heading {font-weight: 600} .axis {stroke: var(--line)}
  .met {fill: var(--met)} .missed {fill: var(--missed)}
"""


def build_chart(answers: Sequence[Stored]) -> str:
    """An SVG: a bar for each answer, to the right of the line if its aim is met, as long as the logarithm of the factor."""
    rows: list[str] = []
    middle, reach = (LABELS + WIDTH - VALUES) / 2, (WIDTH - VALUES - LABELS) / 2
    y = 2 * ROW
    for heading, group in _group(answers):
        rows.append(f'<text class="heading" x="8" y="{y + 15}">{escape(heading)}</text>')
        y += ROW
        for one in group:
            length = reach * min(1.0, abs(math.log(_factor(one))) / math.log(LARGEST))
            x = middle if one["met"] else middle - length
            rows.append(f'<text x="20" y="{y + 15}">{escape(one["question"])}</text>')
            rows.append(
                f'<rect class="{"met" if one["met"] else "missed"}" x="{x:.1f}" y="{y + 4}" width="{max(length, 2):.1f}"'
                f' height="{ROW - 8}"/>'
            )
            rows.append(f'<text x="{WIDTH - VALUES + 12}" y="{y + 15}">{escape(_describe(one))}</text>')
            y += ROW
    met = sum(one["met"] for one in answers)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" role="img" aria-labelledby="title">',
            f'<title id="title">{met} of {len(answers)} aims are met</title>',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{y + 12}"/>',
            f'<text x="{middle - 10}" y="20" text-anchor="end">← aim missed</text>',
            f'<text x="{middle + 10}" y="20">aim met →</text>',
            f'<text x="{WIDTH - VALUES + 12}" y="20">ratio (aim)</text>',
            *rows,
            f'<line class="axis" x1="{middle}" x2="{middle}" y1="{ROW + 8}" y2="{y}"/>',
            "</svg>",
            "",
        ]
    )


def build_page(answers: Sequence[Stored]) -> str:
    met = sum(one["met"] for one in answers)
    lines = [
        "# Speed",
        "",
        "<!-- written by `python -m benchmarks.report` from benchmarks/results/latest.json -->",
        "",
        "Each answer is a ratio of two things that were measured in the same run on the same machine: two cores that Spark,",
        "the servers and the clients share. `benchmarks/README.md` in the repository says what each question measures and",
        "why its comparison is fair, and `make bench` measures them on your machine. Seconds are for information: medians",
        'of a session that has done the same before. "The first time" has what the first repetition took in that session,',
        "in the order of the seconds beside it; where it is empty, it was not kept. Whole commands, with the start of",
        'Spark, are in the answers to `start`. "Ratio before" is that of the earlier measurement; between the two,',
        "the code, the machine, and in `shapes` the size of the tables may have changed.",
        "",
        f"{met} of {len(answers)} aims are met. A bar to the right of the line is better than its aim, a bar to the left is",
        f"worse, by the factor of its length (logarithmic; at most {LARGEST:g}).",
        "",
        f"![{met} of {len(answers)} aims are met; the tables below have the same figures](speed.svg)",
        "",
    ]
    for heading, group in _group(answers):
        lines += [
            f"## {heading}",
            "",
            "| question | ratio | aim | met | seconds | the first time | measured | ratio before |",
            "|---|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| `{one['question']}` | {one['ratio']:.2f} | {_aim(one)} | {'yes' if one['met'] else '**no**'}"
            f" | {_cell(one['detail']['words'])} | {_describe_cold(one)} | {one['measured_at'][:10]}"
            f" | {_describe_previous(one)} |"
            for one in group
        ]
        lines.append("")
    return "\n".join(lines)


def build_paragraph(answers: Sequence[Stored]) -> str:
    """The paragraph of the README. Raises KeyError if a figure that it names was not measured."""
    found = {one["question"]: one for one in answers}
    copy, window = found["postgres_copy: the limit"], found["postgres_window"]
    changes, seconds = window["detail"]["changes"], window["detail"]["seconds"]
    visible = found["freshness, 100 rows"]["detail"]
    return (
        f"On two cores, {copy['detail']['rows']:,} rows of ten columns are copied in {copy['detail']['seconds']:.1f} s"
        f" ({copy['ratio']:.2f} of the speed of `\\copy`),\n"
        f"{changes:,} changes to {window['detail']['rows']:,} rows take {seconds:.1f} s"
        f" from feed to commit ({window['ratio']:.2f} of the bare statements), and\n"
        f"a follower that polls without a pause shows a commit of 100 rows after {visible['visible_seconds'] * 1000:.0f} ms"
        f" (95 % within {visible['visible_p95_seconds'] * 1000:.0f} ms): [all figures](docs/reference/speed.md).\n"
    )


def build_all(answers: Sequence[Stored], readme: str) -> Mapping[str, str]:
    """The content of each file, by its path. Raises ValueError if the README does not have each mark once."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return {
        PAGE: build_page(answers),
        CHART: build_chart(answers),
        README: f"{before}{BEGIN}{build_paragraph(answers)}{END}{after}",
    }


def write() -> None:
    for path, content in _build().items():
        (ROOT / path).write_text(content)


def _build() -> Mapping[str, str]:
    return build_all(json.loads(RESULTS.read_text()), (ROOT / README).read_text())


def _group(answers: Sequence[Stored]) -> Sequence[tuple[str, Sequence[Stored]]]:
    grouped: dict[str, list[Stored]] = {heading: [] for heading, _ in GROUPS}
    for one in answers:
        grouped[next(heading for heading, names in GROUPS if one["question"].startswith(names))].append(one)
    return [(heading, group) for heading, group in grouped.items() if group]


def _factor(answer: Stored) -> float:
    """How much better than its aim; below 1: worse."""
    ratio, aim = max(answer["ratio"], 1e-9), answer["aim"]
    return float(ratio / aim if answer["better"] == "higher" else aim / ratio)


def _describe(answer: Stored) -> str:
    return f"{answer['ratio']:.2f} ({_aim(answer)})"


def _describe_cold(answer: Stored) -> str:
    cold = answer["detail"].get("cold_seconds", [])
    return ", ".join(f"{seconds:.1f} s" for seconds in (cold if isinstance(cold, list) else [cold]))


def _describe_previous(answer: Stored) -> str:
    previous = answer.get("previous")
    return f"{previous['ratio']:.2f} ({previous['measured_at'][:10]})" if previous else ""


def _aim(answer: Stored) -> str:
    return f"{'≥' if answer['better'] == 'higher' else '≤'} {answer['aim']:g}"


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")


def main(arguments: Sequence[str]) -> int:
    if list(arguments) != ["--check"]:
        write()
        return 0
    stale = [path for path, content in _build().items() if not _is(ROOT / path, content)]
    for path in stale:
        print(f"{path} is not that of the results: run python -m benchmarks.report", file=sys.stderr)
    return 1 if stale else 0


def _is(path: Path, content: str) -> bool:
    return path.exists() and path.read_text() == content


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Text about runs and steps: one line for each, and a table for several pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdf.errors import BrakeStopped, Paused
from cdf.results import RunResult, Step
from infra.output import Output, format_count

__all__ = ["format_outcome", "format_result", "format_step", "print_summary"]


def format_result(result: RunResult) -> str:
    parts = []
    if result.loaded_rows is not None:
        parts.append(f"copied {result.loaded_rows} rows")
    if result.windows:
        parts.append(
            f"{result.windows} window{'s' if result.windows != 1 else ''}: {result.inserts} inserts, "
            f"{result.updates} updates, {result.deletes} deletes"
        )
    if result.conflicts.total:
        parts.append(f"{result.conflicts.total} conflicts")
    if result.rejected:
        parts.append(f"{format_count(result.rejected, 'row')} dead-lettered: `deltarelay deadletter list`")
    actions = ", ".join(parts) or "nothing to do"
    return f"{result.pipeline}: at version {result.position} ({actions}; {result.seconds:.1f} s)"


def format_outcome(entry: Mapping[str, Any]) -> str:
    """Summarise the result of one pipeline in a few words."""
    if (error := entry.get("error")) is not None:
        if error["code"] == Paused.code:
            return "paused"
        if error["code"] == BrakeStopped.code:
            return "stopped by a brake"
        return f"{'temporary' if error['transient'] else 'failed'}: {error['code']}"
    if entry["loaded_rows"] is not None:
        return "copied"
    return "applied" if entry["windows"] else "up to date"


def print_summary(output: Output, entries: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of several pipelines in the order of the file; their own lines appeared in the order of completion."""
    if len(entries) < 2:
        return
    output.line()
    rows = []
    for entry in entries:
        changes = None if "error" in entry else sum(entry[kind] for kind in ("inserts", "updates", "deletes"))
        copied = entry.get("loaded_rows")
        rows.append(
            (entry["pipeline"], format_outcome(entry), entry.get("position"), copied, changes, entry.get("seconds"))
        )
    columns = ("pipeline", "outcome", "version", "rows copied", "changes", "seconds")
    output.table(columns, rows, numbers=columns[2:])
    counts: dict[str, int] = {}
    for entry in entries:
        outcome = format_outcome(entry)
        counts[outcome] = counts.get(outcome, 0) + 1
    totals = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    output.line(f"{format_count(len(entries), 'pipeline')}: {totals}")


def format_step(step: Step) -> str:
    applied = step.applied
    seconds = sum(applied.seconds.values())
    if step.kind == "load":
        strategies = {"swap": " into a new table", "merge": ", writing only differing rows"}
        strategy = next((text for name, text in strategies.items() if name in applied.seconds), "")
        dead_lettered = _format_dead_letters(applied.rejected)
        return f"copied version {step.last}, {applied.inserts} rows{strategy} ({seconds:.2f} s){dead_lettered}"
    versions = f"version {step.first}" if step.first == step.last else f"versions {step.first}..{step.last}"
    copied = "" if applied.copied is None else f", by a copy of the table ({applied.copied} rows)"
    text = (
        f"{versions}: {applied.inserts} inserts, {applied.updates} updates, {applied.deletes} deletes{copied} "
        f"({seconds:.2f} s)"
    )
    if applied.ddl:
        text += f", altered the target's columns ({format_count(len(applied.ddl), 'statement')})"
    if applied.conflicts.total:
        counts = [f"{count} {kind}" for kind, count in applied.conflicts.to_dict().items() if count]
        text += f", conflicts: {', '.join(counts)}"
    return text + _format_dead_letters(applied.rejected)


def _format_dead_letters(rejected: int) -> str:
    return f", {format_count(rejected, 'row')} of them dead-lettered" if rejected else ""

"""Whether a recorded decision covers what a later scan finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.erasure.scan.findings import FOLLOWS
from audit.erasure.scan.results import Finding

__all__ = ["is_accepted"]


def is_accepted(findings: Sequence[Finding], decided: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a decision covers all of these findings. Later findings, in other storage locations or in greater
    number, are not covered. What follows from a row that stays is: a rewritten file, and what the log says about it."""
    most: Counter[tuple[str, str]] = Counter()
    for one in decided:
        most[_folder(one["place"]), one["spelling"]] += one["count"] if one["reason"] not in FOLLOWS else 0
    now: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        if finding.reason not in FOLLOWS:
            now[_folder(finding.place), finding.spelling] += finding.count
        elif not any(f"{folder}/".startswith(f"{_folder(finding.place)}/") for folder, _ in most):
            return False
    return all(count <= most[key] for key, count in now.items())


def _folder(place: str) -> str:
    """Return the table's folder for a file of its log or change data; else the folder of the file, the topic, or the place
    itself."""
    folder, inside, _ = (
        place.partition("/_delta_log/") if "/_delta_log/" in place else place.partition("/_change_data/")
    )
    return folder if inside else place.rpartition("/")[0] or place

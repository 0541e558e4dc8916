"""Which files of a log describe the table at a version, by their names."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["V2_CHECKPOINT", "Segment", "choose_segment", "find_latest"]

_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
V2_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")
_COMMIT = re.compile(r"(\d{20})\.json")
_OF_VERSIONS = re.compile(r"(\d{20})\.(?:(\d{20})\.)?")


@dataclass(frozen=True, slots=True)
class Segment:
    """The files of the log that describe the table at a version."""

    checkpoint: tuple[str, ...]
    """The files of one checkpoint; empty: the history begins at version 0."""
    commits: tuple[int, ...]


def choose_segment(names: Collection[str], version: int) -> Segment | None:
    """The segment of a version; None: the log has lost a file that it needs."""
    checkpoints: dict[int, dict[str, list[str]]] = {}
    for name in sorted(name for name in names if ".checkpoint." in name):
        part = _PART.fullmatch(name)
        if part is not None:
            kind = f"of {part[3]}"
        elif _CLASSIC.fullmatch(name) or V2_CHECKPOINT.fullmatch(name):
            kind = name
        else:
            continue
        checkpoints.setdefault(int(name[:20]), {}).setdefault(kind, []).append(name)
    base, files = -1, tuple[str, ...]()
    for at in sorted(checkpoints, reverse=True):
        # All parts of a checkpoint, or one file
        complete = [
            found for kind, found in checkpoints[at].items() if len(found) == int(kind.partition("of ")[2] or 1)
        ]
        if at <= version and complete:
            base, files = at, tuple(complete[0])
            break
    commits = tuple(range(base + 1, version + 1))
    existing = set(names)
    lost = any(f"{commit:020d}.json" not in existing for commit in commits)
    return None if lost else Segment(files, commits)


def find_latest(names: Collection[str], known: int) -> int | None:
    """The latest version, if a reader has read the version ``known`` before. None: a commit file after it, or one that
    describes the latest version, is missing, or there are other files of later versions."""
    commits = {int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))}
    latest = max(commits, default=-1)
    newest = max((int(found[2] or found[1]) for name in names if (found := _OF_VERSIONS.match(name))), default=-1)
    if latest < known or latest < newest or not commits.issuperset(range(known + 1, latest + 1)):
        return None
    return None if choose_segment(names, latest) is None else latest

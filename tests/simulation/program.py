"""A program: options and steps, drawn from a seed. Its ``repr`` is Python that makes it again.

Each step has a meaning whatever the steps before it were (a delete of a key that is not there does nothing), so that
steps can be dropped one by one until only those are left that a failure needs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

__all__ = ["Change", "Fault", "Lose", "Options", "Program", "Reload", "Replay", "Run", "Step", "Wait", "draw"]

UNSTORABLE = 13
"""The value that the target refuses: rows with it become dead letters."""
KEYS = 5


class _Plain:
    """A repr with only those fields that differ from their defaults."""

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{one.name}={value!r}"
            for one in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, one.name)) != one.default
        )
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, repr=False)
class Options(_Plain):
    """What stays the same for a whole program."""

    holds: Literal["state", "history"] = "state"
    two_steps: bool = False
    """The sink makes a window durable in parts, and says so by ``Position.pending``. Only for a history."""
    wide_key: bool = False
    """A key of two columns."""
    start: str | int = "snapshot"
    guard: bool = False
    follows: tuple[str, ...] = ("add_column",)
    """Schema changes that the sink follows."""
    copies: bool = False
    """The sink applies windows with changes by copying the whole table."""
    foresees: bool = False
    """The sink wants each window announced."""


@dataclass(frozen=True, repr=False)
class Change(_Plain):
    """One statement at the source. ``keys`` and ``value`` mean what the kind needs."""

    kind: str = "insert"
    keys: tuple[int, ...] = ()
    value: int = 0


@dataclass(frozen=True, repr=False)
class Lose(_Plain):
    """What goes away at the source: ``files`` by VACUUM, ``log`` by log clean-up, ``commit``: one commit file.
    Up to (of ``commit``: only) the version that lies ``back`` before the latest."""

    what: str = "files"
    back: int = 0


@dataclass(frozen=True, repr=False)
class Fault(_Plain):
    """Something that happens at the ``nth`` load or window of a run (from 0), or as the sink is opened."""

    kind: str = "die_during"
    nth: int = 0
    point: int = 0
    """Of a step that becomes durable in parts: at which part."""


@dataclass(frozen=True, repr=False)
class Run(_Plain):
    until: int | None = None
    """How many versions before the latest it ends; None: at the latest, which is not the same with commits meanwhile."""
    max_commits: int = 500
    max_bytes: int = 10**9
    fault: Fault | None = None
    retries: bool = False
    """As the command line does: what is temporary is tried again."""
    plan: bool = False
    """Before it, its plan: it has to say what the run does."""


@dataclass(frozen=True, repr=False)
class Reload(_Plain):
    fault: Fault | None = None


@dataclass(frozen=True, repr=False)
class Replay(_Plain):
    """Of dead letters. ``mended``: the target now takes what it refused, for this replay."""

    mended: bool = True


@dataclass(frozen=True, repr=False)
class Wait(_Plain):
    """Until a dead runner's lease has ended."""


Step: TypeAlias = Change | Lose | Run | Reload | Replay | Wait


@dataclass(frozen=True)
class Program:
    options: Options
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        lines = "".join(f"        {step!r},\n" for step in self.steps)
        return f"Program(\n    {self.options!r},\n    (\n{lines}    ),\n)"


# ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_USUAL = {
    "insert": 7, "update": 6, "delete": 5, "merge": 5, "move": 2, "swap": 2, "overwrite": 2, "rewrite": 2, "restore": 2,
    "optimize": 2, "property": 1, "nothing": 1,
}  # fmt: skip
_RARE = {
    "add_column": 5, "drop_column": 1, "rename_column": 1, "put_twice": 1, "twice": 1, "null_key": 1, "replace": 3,
    "recreate": 2, "feed_off": 1, "feed_on": 2, "erase": 4, "forge": 1,
}  # fmt: skip
_FAULTS = {
    "die_before": 3, "die_during": 5, "die_after": 4, "die_inspect": 1, "die_open": 1, "outage_before": 2,
    "outage_during": 3, "outage_after": 3, "outage_open": 1, "takeover": 4, "append": 3, "recreate": 1, "interrupt": 2,
}  # fmt: skip


def draw(seed: int | str) -> Program:
    """The program of a seed: always the same."""
    chance = random.Random(f"program {seed}")
    options = _options(chance)
    # At first a table that has some history already, so that a start in the middle of it means something
    steps: list[Step] = [_change(chance, options, False) for _ in range(chance.choice((0, 0, 3, 6)))]
    calm = chance.random() < 0.5  # half of the programs meet nothing that ends in a refusal, and get further
    for _ in range(chance.randint(4, 14)):
        steps += [_change(chance, options, calm) for _ in range(chance.choice((0, 1, 1, 2, 3, 5)))]
        kind = _pick(chance, {"run": 20, "lose": 0 if calm else 1, "reload": 2, "replay": 1, "wait": 1})
        if kind == "run":
            steps.append(_run(chance, options))
        elif kind == "lose":
            steps.append(Lose(chance.choice(("files", "files", "log", "commit")), chance.choice((0, 1, 2, 3))))
        elif kind == "reload":
            steps.append(Reload(_fault(chance) if chance.random() < 0.3 else None))
        elif kind == "replay":
            steps.append(Replay(chance.random() < 0.7))
        else:
            steps.append(Wait())
    return Program(options, (*steps, Wait(), Run()))


def _options(chance: random.Random) -> Options:
    holds: Literal["state", "history"] = "state" if chance.random() < 0.65 else "history"
    follows = [("add_column",), ("add_column",), ("add_column", "drop_column"), ()]
    return Options(
        holds=holds,
        two_steps=holds == "history" and chance.random() < 0.75,
        wide_key=chance.random() < 0.3,
        start=chance.choice(("snapshot", "snapshot", "earliest", 0, 0, 1, 2, 4)),
        guard=chance.random() < 0.4,
        follows=chance.choice(follows),
        copies=holds == "state" and chance.random() < 0.3,
        foresees=chance.random() < 0.25,
    )


def _change(chance: random.Random, options: Options, calm: bool) -> Change:
    rare = {"add_column": 5, "erase": 4 if options.guard else 0} if calm else _RARE
    kind = _pick(chance, _USUAL if chance.random() < 0.85 else rare)
    keys = tuple(chance.sample(range(KEYS), chance.choice((1, 1, 2, 3))))
    return Change(kind, keys, chance.choice((0, 1, 2, 3, 4, UNSTORABLE)))


def _run(chance: random.Random, options: Options) -> Run:
    return Run(
        until=chance.choice((None, None, None, 0, 1, 2, 4)),
        max_commits=chance.choice((1, 2, 3, 500, 500)),
        max_bytes=chance.choice((10**9, 10**9, 10**9, 1, 300, 700)),
        fault=_fault(chance) if chance.random() < 0.5 else None,
        retries=chance.random() < 0.3,
        plan=chance.random() < 0.15,
    )


def _fault(chance: random.Random) -> Fault:
    return Fault(_pick(chance, _FAULTS), chance.choice((0, 0, 0, 1, 1, 2)), chance.choice((0, 1, 1, 2)))


def _pick(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]

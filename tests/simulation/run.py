"""A program is run: the product's ``Pipeline`` over a memory feed into a sink that dies, waits and is taken over.

After every step the target is held against the model: each durable step is the one that the model expects next, positions
never run back, no version is applied twice, each refusal has the expected code, and the rows are those of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from cdf import Limits, Pipeline
from cdf.errors import CdfError, SinkUnavailable
from cdf.pipeline.replay import replay
from cdf.testing import MemoryFeed
from infra.retry import retry
from tests.simulation.checks import Ledger
from tests.simulation.model import Expected, expect_reload, expect_run
from tests.simulation.program import Change, Fault, Lose, Options, Program, Reload, Replay, Run, Step, Wait
from tests.simulation.sink import Died, ProgramSink, Target
from tests.simulation.source import Source

__all__ = ["Wrong", "run_program"]


_IN_A_STEP = [f"{what}_{moment}" for what in ("die", "outage") for moment in ("before", "during", "after")]


class Wrong(AssertionError):
    """The product did not do what the model expects."""


class Guard:
    """Leaves out whoever is in the register, as the product's own guard does; it works on the rows in memory."""

    executor_modules = ()

    def __init__(self, source: Source) -> None:
        self._source = source

    def check(self, rows: Any, *, key: Any, erasing: Collection[int], **_: Any) -> Callable[[Any], Any] | None:
        names = rows.column_names

        def stays(row: dict[str, Any]) -> bool:
            return (
                row.get("_commit_version") in erasing or tuple(row[name] for name in key) not in self._source.register
            )

        def without(rows: Any) -> Any:
            assert rows.column_names == names
            return rows.filter([stays(row) for row in rows.to_pylist()])

        return None if all(map(stays, rows.to_pylist())) else without

    def erased(self, commits: Any, **_: Any) -> frozenset[int]:
        facts = self._source.facts
        return frozenset(commit.version for commit in commits if facts[commit.version].erased)


class _World:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.source = Source(wide_key=options.wide_key)
        self.target = Target()
        self.ledger = Ledger(self.source, options, self.target)
        self.trace: list[str] = []

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, step: Step) -> None:
        outcome = "done"
        if isinstance(step, Change):
            self.source.change(step)
        elif isinstance(step, Lose):
            self.source.lose(step)
        elif isinstance(step, Wait):
            self.target.wait()
        elif isinstance(step, Run):
            outcome = self._run(step)
        elif isinstance(step, Reload):
            outcome = self._reload(step)
        elif isinstance(step, Replay):
            outcome = self._replay(step)
        self.ledger.check()
        position = self.target.contents.position
        self.trace.append(f"{step!r}: {outcome}, source at {self.source.latest}, target {position}")

    def _run(self, step: Run) -> str:
        leased = self.target.leased
        expected = expect_run(self.source, self.options, self.target.contents.position, step, leased=leased)
        pipeline, happening = self._pipeline(step, expected)
        if step.plan:
            self._check_plan(self._of(step, lambda _: None), step, expected)
        until = None if step.until is None else max(0, self.source.latest - step.until)
        if step.retries:
            return self._check(
                lambda: self._persistently(pipeline, until, happening), expected, happening, retried=True
            )
        return self._check(lambda: pipeline.run(until, progress=happening.progress), expected, happening)

    def _persistently(self, pipeline: Pipeline, until: int | None, happening: _Happening) -> Any:
        last, target = pipeline.context.resolve_last_version(until), self.target
        before = target.contents.position

        def work() -> Any:
            nonlocal before
            before = target.contents.position
            return pipeline.run(last, progress=happening.progress)

        def moved() -> bool:
            return before != target.contents.position

        return retry(work, seconds=1e-6, has_progressed=moved, on_retry=lambda *_: None)

    def _reload(self, step: Reload) -> str:
        expected = expect_reload(self.source, self.options, leased=self.target.leased)
        in_step = step.fault is not None and step.fault.kind in _IN_A_STEP
        pipeline, happening = self._pipeline(Run(fault=step.fault if in_step else None), expected)
        return self._check(pipeline.reload, expected, happening)

    def _replay(self, step: Replay) -> str:
        position = self.target.contents.position
        version = position.version
        if self.options.holds != "state" or version is None:
            return "nothing to do"
        back = self.source.latest - version
        expected = expect_run(self.source, self.options, position, Run(until=max(0, back)), leased=self.target.leased)
        if expected.refusal is None and self.source.gone(version, snapshot=True):
            expected.refusal = "versions_expired"
        self.target.mended = step.mended
        pipeline, happening = self._pipeline(Run(), expected)
        try:
            return self._check(lambda: replay(pipeline.runner), expected, happening)
        finally:
            self.target.mended = False
            self.ledger.replayed(mended=step.mended and expected.refusal is None)

    # ── one of them ──────────────────────────────────────────────────────────────────────────────────────────────

    def _pipeline(self, step: Run, expected: Expected) -> tuple[Pipeline, _Happening]:
        happening = _Happening(self, step, expected)
        pipeline = self._of(step, happening.at)
        happening.pipeline = pipeline
        return pipeline, happening

    def _of(self, step: Run, at: Callable[[str], None]) -> Pipeline:
        return Pipeline(
            MemoryFeed(self.source.table),
            ProgramSink(self.target, self.options, at=at),
            key=self.source.key,
            start=self.options.start,
            limits=Limits(step.max_commits, step.max_bytes),
            guard=Guard(self.source) if self.options.guard else None,
        )

    def _check(
        self, work: Callable[[], Any], expected: Expected, happening: _Happening, *, retried: bool = False
    ) -> str:
        before, failures = len(self.target.steps), len(self.target.failures)
        error: str | None = None
        result: Any = None
        try:
            result = work()
        except CdfError as refused:
            error = refused.code
        except Died:
            error = "died"
        steps = [(one.kind, one.first, one.last) for one in self.target.steps[before:]]
        wanted, outcome = happening.outcome(expected, retried=retried)
        if (steps, error) != (wanted, outcome):
            raise Wrong(f"expected {wanted} and then {outcome}, found {steps} and then {error}")
        recorded = self.target.failures[failures:]
        if (
            error not in (None, "died", "lease_held")
            and expected.recorded
            and happening.records_once
            and recorded[-1:] != [error]
        ):
            raise Wrong(f"the failure {error} was recorded as {recorded}")
        if error is None and isinstance(getattr(result, "windows", None), int):
            windows = [one for one in steps if one[0] == "window"]
            if not retried and (result.windows, result.position) != (
                len(windows),
                self.target.contents.position.version,
            ):
                raise Wrong(f"the result tells {result}, and not {steps}")
        if error != "died" and self.target.leased and not happening.was_leased:
            raise Wrong("the lease was not given back")
        return error or "done"

    def _check_plan(self, pipeline: Pipeline, step: Run, expected: Expected) -> None:
        until = None if step.until is None else max(0, self.source.latest - step.until)
        held, position = self.target.contents, self.target.contents.position
        try:
            plan = pipeline.plan(until)
        except CdfError as error:
            if expected.steps or error.code != expected.refusal:
                raise Wrong(f"the plan was refused ({error.code}), and {expected} is to come") from error
            return
        finally:
            if self.target.contents is not held:
                raise Wrong("a plan has written something")
        refused = expected.refusal not in (None, "lease_held")
        if expected.refusal == "lease_held" or self.options.copies or self.options.guard:
            return  # a plan looks neither at the lease nor at the guard, and counts changes where a copy needs none
        of_old_table = position.version is None and expected.refusal == "table_replaced"
        if (not expected.steps and expected.refusal == "key_violation") or of_old_table:
            return  # a plan reads neither the keys of the first copy, nor the log again after the rows of a window
        if bool(plan.problems) != refused:
            raise Wrong(f"the plan tells {plan.problems}, expected is {expected.refusal}")
        if not refused:
            told = [("load", plan.load_version, plan.load_version)] if plan.load_version is not None else []
            told += [("window", one.first, one.last) for one in plan.windows]
            if told != expected.steps:
                raise Wrong(f"the plan tells {told}, expected is {expected.steps}")


class _Happening:
    """What happens during one run, and what the run is to make of it."""

    def __init__(self, world: _World, step: Run, expected: Expected) -> None:
        self.world, self.step, self.fault = world, step, step.fault or Fault("none")
        self.pipeline: Pipeline | None = None
        self.records_once = True
        self.was_leased = world.target.leased
        self.fired: str | None = None
        self._expected = expected
        self._reached, self._points = -1, -1
        self._others: list[tuple[str, int, int]] = []

    def at(self, moment: str) -> None:
        kind = self.fault.kind
        if moment == "before":
            self._reached, self._points = self._reached + 1, -1
        if moment == "during":
            self._points += 1
        if self.fired is not None:
            return
        here = self._reached == self.fault.nth
        point = self.fault.point if self.world.options.two_steps and self._is_window() else 0
        at_part = here and moment == "during" and self._points == point
        if (kind == "die_inspect" and moment == "inspect") or (kind == "die_open" and moment == "open"):
            self._fire(Died())
        elif kind == "outage_open" and moment == "before_open":
            self._fire(SinkUnavailable("gone for a moment"))
        elif (kind == "die_during" and at_part) or (here and kind == f"die_{moment}" and moment in ("before", "after")):
            self._fire(Died())
        elif (kind == "outage_during" and at_part) or (
            here and kind == f"outage_{moment}" and moment in ("before", "after")
        ):
            self._fire(SinkUnavailable("gone for a moment"))
        elif kind == "takeover" and at_part:
            self._take_over()
        elif kind == "append" and here and moment == "before":
            self.fired = kind
            self.world.source.change(Change("insert", (0, 1, 2, 3, 4), 9))
        elif kind == "recreate" and here and moment == "before" and self._is_window():
            self.fired = kind
            self.world.source.change(Change("recreate", (0, 1), 9))

    def progress(self, _: Any) -> None:
        if self.fault.kind == "interrupt" and self._reached == self.fault.nth and self.fired is None:
            assert self.pipeline is not None
            self.fired = "interrupt"
            self.pipeline.interrupt()

    def _is_window(self) -> bool:
        steps = self._expected.steps
        return 0 <= self._reached < len(steps) and steps[self._reached][0] == "window"

    def _fire(self, error: BaseException) -> None:
        self.fired = self.fault.kind
        raise error

    def _take_over(self) -> None:
        """This runner has been silent for a whole lease: another one takes over, and does all there is to do."""
        world = self.world
        self.fired, self.records_once = "takeover", False
        world.target.wait()
        before = len(world.target.steps)
        with suppress(CdfError):
            self.world._of(self.step, lambda _: None).run(self._until())
        self._others = [(one.kind, one.first, one.last) for one in world.target.steps[before:]]

    def _until(self) -> int | None:
        return None if self.step.until is None else max(0, self.world.source.latest - self.step.until)

    def outcome(self, expected: Expected, *, retried: bool) -> tuple[list[tuple[str, int, int]], str | None]:
        """The durable steps and the code of the error, after what happened."""
        fired, steps = self.fired, expected.steps
        if fired in (None, "append"):
            return steps, expected.refusal
        done = (
            steps[: self._reached + (fired in ("die_after", "outage_after", "interrupt"))] if self._reached >= 0 else []
        )
        if fired.startswith("die"):
            return done, "died"
        if fired.startswith("outage"):
            return (steps, expected.refusal) if retried else (done, "sink_unavailable")
        if fired == "takeover":
            self._check_others(steps[self._reached :])
            return steps, "fenced"
        if fired == "recreate":
            return done, "table_replaced"
        ends = self._reached + 1 >= len(steps) and expected.refusal is None
        return done, None if ends else "interrupted"

    def _check_others(self, steps: list[tuple[str, int, int]]) -> None:
        if self._others != steps:
            raise Wrong(f"the successor was to do {steps}, and did {self._others}")


def run_program(program: Program) -> list[str]:
    """→ the trace of a run. Raises Wrong, or whatever else goes wrong."""
    world = _World(program.options)
    for number, step in enumerate(program.steps):
        try:
            world.take(step)
        except Exception as error:
            error.add_note(f"at step {number}, {step!r}; before it:\n" + "\n".join(world.trace))
            raise
    return world.trace

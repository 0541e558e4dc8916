"""Random programs: whatever happens to source, runner and target, the target is the source at its position.

``DELTARELAY_TEST_SEED=…`` draws others, and the soak draws more of them with a new seed each time. A program that fails
is cut down and printed as Python: it belongs into ``test_found.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fixtures.fix_seed import RUN_SEED, examples
from tests.simulation.program import Change, Fault, Options, Program, Run, draw
from tests.simulation.run import Wrong, run_program
from tests.simulation.shrink import shrink

SEED = RUN_SEED
PROGRAMS = examples(1200)
PARTS = 8
"""As many tests, so that several processes can share them."""


def failure(program: Program) -> BaseException | None:
    try:
        run_program(program)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return error
    return None


@pytest.mark.usefixtures("seed")  # by which the soak chooses its tests
@pytest.mark.parametrize("part", range(PARTS))
def test_the_target_is_the_source_at_its_position(part: int) -> None:
    for number in range(part, PROGRAMS, PARTS):
        program = draw(f"{SEED}/{number}")
        if (error := failure(program)) is None:
            continue
        kind = type(error)
        small = shrink(program, lambda candidate, kind=kind: isinstance(failure(candidate), kind))  # type: ignore[misc]
        pytest.fail(f"seed {SEED}, program {number}; cut down:\n\n{small!r}\n\n{failure(small)!r}", pytrace=False)


def test_the_same_seed_gives_the_same_run() -> None:
    for number in range(25):
        one, two = (draw(f"{SEED}/{number}") for _ in range(2))
        assert repr(one) == repr(two)
        assert run_program(one) == run_program(two)
    assert draw("1") != draw("2")


def test_the_printed_program_is_the_program() -> None:
    for number in range(50):
        program = draw(f"{SEED}/{number}")
        made = eval(repr(program), vars(__import__("tests.simulation.program", fromlist=["Program"])))
        assert made == program


def test_a_failing_program_is_cut_down_to_what_it_needs() -> None:
    """A fault that only this combination has: a death after the first window, and a key that moves later."""

    def fails(program: Program) -> bool:
        died = any(isinstance(step, Run) and step.fault and step.fault.kind == "die_after" for step in program.steps)
        return died and any(isinstance(step, Change) and step.kind == "move" for step in program.steps)

    found = next(program for number in range(1000) if fails(program := draw(f"shrink/{number}")))
    small = shrink(found, fails)
    assert small.options == Options()
    run, move = sorted(small.steps, key=lambda step: isinstance(step, Change))
    assert isinstance(move, Change)
    assert (run, replace(move, keys=())) == (Run(fault=Fault("die_after")), Change("move"))


def test_programs_reach_what_they_are_made_for() -> None:
    """Or else a program could pass because nothing happens in it: refusals, deaths and windows are met often."""
    outcomes = " ".join(line for number in range(150) for line in run_program(draw(f"reach/{number}")))
    met = ["died", "interrupted", "fenced", "lease_held", "schema_drift", "table_replaced", "feed_not_enabled"]
    met += ["key_violation", "versions_expired", "version_not_found", "sink_unavailable", "erasure_not_configured"]
    assert not [code for code in met if f": {code}, source" not in outcomes]
    assert "pending=Bounds(" in outcomes


def test_a_wrong_outcome_is_noticed() -> None:
    """The expectation is not taken from the product: a sink that loses a row is found."""
    from tests.simulation import sink

    program = Program(Options(start=0), (Change(keys=(1,)), Change(keys=(2,)), Run(max_commits=1)))
    assert failure(program) is None
    usual = sink.ProgramSink._make_durable
    try:
        sink.ProgramSink._make_durable = lambda self, contents: usual(  # type: ignore[method-assign]
            self, replace(contents, rows={key: row for key, row in contents.rows.items() if key != (2,)})
        )
        assert isinstance(failure(program), AssertionError)
    finally:
        sink.ProgramSink._make_durable = usual  # type: ignore[method-assign]
    assert issubclass(Wrong, AssertionError)

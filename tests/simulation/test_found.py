"""Programs that found a fault once, cut down. Each runs on every commit."""

from __future__ import annotations

import pytest

from tests.simulation.program import Change, Options, Program, Replay, Run
from tests.simulation.run import run_program

FOUND = {
    # The replay of a dead letter passed no guard: an erased person's row came back into the target
    "an erased person is a dead letter": Program(
        Options(guard=True),
        (Change(keys=(1,), value=13), Run(), Change(kind="erase", keys=(1,)), Replay()),
    ),
    # Also when the person came back into the source: the guard leaves that row out of every window
    "an erased person has come back": Program(
        Options(guard=True),
        (
            Change(keys=(1, 2), value=13),
            Run(),
            Change(kind="erase", keys=(1,)),
            Change(keys=(1,), value=2),
            Run(),
            Replay(),
        ),
    ),
    # A replay asked the log for a version that the new table does not have
    "dead letters of a table that was created again": Program(
        Options(), (Change(keys=(1,)), Run(), Change(kind="recreate", keys=(0,)), Replay())
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    run_program(FOUND[name])

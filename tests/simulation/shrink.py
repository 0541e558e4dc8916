"""A failing program is cut down to a small one that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.simulation.program import Change, Options, Program, Reload, Run, Step

__all__ = ["shrink"]


def shrink(program: Program, fails: Callable[[Program], bool], *, most: int = 2000) -> Program:
    """Drops steps, long stretches first, then simplifies steps and options; as long as the program ``fails``."""
    tries = 0
    found = True
    while found and tries < most:
        found = False
        for smaller in _smaller(program):
            tries += 1
            if tries >= most:
                break
            if smaller != program and fails(smaller):
                program, found = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    steps = program.steps
    length = max(1, len(steps) // 2)
    while length:
        for start in range(len(steps) - length + 1):
            yield Program(program.options, steps[:start] + steps[start + length :])
        length //= 2
    for options in _simpler_options(program.options):
        yield Program(options, steps)
    for number, step in enumerate(steps):
        for simpler in _simpler_step(step):
            yield Program(program.options, (*steps[:number], simpler, *steps[number + 1 :]))


def _simpler_options(options: Options) -> Iterator[Options]:
    for one in fields(Options):
        if getattr(options, one.name) != one.default:
            simpler = replace(options, **{one.name: one.default})
            if not simpler.two_steps or simpler.holds == "history":
                yield simpler


def _simpler_step(step: Step) -> Iterator[Step]:
    if isinstance(step, Change):
        for key in step.keys if len(step.keys) > 1 else ():
            yield replace(step, keys=tuple(one for one in step.keys if one != key))
        if step.value:
            yield replace(step, value=0)
        return
    for one in fields(step):
        if getattr(step, one.name) != one.default:
            yield replace(step, **{one.name: one.default})
    if isinstance(step, (Run, Reload)) and step.fault is not None:
        yield from (replace(step, fault=replace(step.fault, **{name: 0})) for name in ("nth", "point"))

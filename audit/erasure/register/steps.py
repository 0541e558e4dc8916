"""The steps of a run in the register, each with a MAC: a certificate is issued over steps that a run has recorded.

Without the MAC, a user with rights on the register's tables and no key could insert the steps of an erasure that never
happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from audit.erasure.register.records import StepName
from audit.trail.redaction import canonical_json
from cdf.errors import VerificationError
from cdf.result import plain

if TYPE_CHECKING:
    from audit.erasure.register.leased_register import LeasedRegister
    from audit.erasure.register.records import Step
    from audit.erasure.register.secrets import Keys
    from audit.erasure.register.store import Register

__all__ = ["StepRecords", "with_mac"]

_MAC = "mac"
_WITHOUT_MAC = (StepName.DELETING, StepName.FOUND, StepName.ACCEPT)
"""None of these steps makes a certificate say `erased`."""


@dataclass(frozen=True, slots=True)
class StepRecords:
    """The steps of one run."""

    run: str
    register: Register
    leased: LeasedRegister
    keys: Keys

    def read(self, place: str, step: StepName) -> dict[str, Any] | None:
        """Return the facts of the step; None where it is not recorded. Raises VerificationError for a wrong MAC."""
        facts = self.leased.read_step(place, step)
        return None if facts is None else _without_mac(self.keys, self.run, place, step, facts)

    def has(self, place: str, step: StepName) -> bool:
        return self.read(place, step) is not None

    def record(self, place: str, step: StepName, facts: Mapping[str, Any]) -> None:
        """Record the step for good."""
        self.leased.record_step(place, step, with_mac(self.keys, self.run, place, step, facts))

    def replace(self, place: str, step: str, facts: Mapping[str, Any]) -> None:
        """Record the step, or replace its facts."""
        self.leased.replace_step(place, step, with_mac(self.keys, self.run, place, step, facts))

    def all(self) -> tuple[Step, ...]:
        """Return all steps of the run. Raises VerificationError for a wrong MAC."""
        return tuple(
            one
            if one.step in _WITHOUT_MAC
            else replace(one, facts=_without_mac(self.keys, self.run, one.table, one.step, one.facts))
            for one in self.register.steps(self.run)
        )

    def adopt(self) -> None:
        """Add a MAC to the steps that an earlier release has recorded without one."""
        for one in self.register.steps(self.run):
            if one.step not in _WITHOUT_MAC and _MAC not in one.facts:
                self.replace(one.table, one.step, one.facts)


def with_mac(keys: Keys, run: str, place: str, step: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = plain(facts)
    return {**fields, _MAC: keys.mac(run, place, step, canonical_json(fields).decode())}


def _without_mac(keys: Keys, run: str, place: str, step: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in facts.items() if name != _MAC}
    if not keys.is_mac(facts.get(_MAC), run, place, step, canonical_json(fields).decode()):
        raise VerificationError(
            f"the step {step} of {place or 'the run'} in the register was not recorded by run {run}",
            hint="the register was altered: restore it from its backup; or `erasure.former_seal_keys` lacks a key; if an "
            "earlier release recorded the step, `deltarelay erase run --adopt-steps` accepts it as it is",
        )
    return fields

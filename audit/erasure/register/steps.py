"""Steps of a run as the register keeps them, each with a MAC: a certificate is issued over steps that a run has recorded.

Without it a user with rights on the register's tables, and no key, could insert the steps of an erasure that never was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from audit.erasure.register.run_lease import DELETING
from audit.trail.redaction import canonical_json
from cdf.errors import VerificationError
from cdf.result import plain

if TYPE_CHECKING:
    from audit.erasure.register.secrets import Keys

__all__ = ["UNSIGNED", "authentic", "has_mac", "with_mac"]

_MAC = "mac"
UNSIGNED = (DELETING, "found", "accept")
"""Steps without a MAC. None of them makes a certificate say `erased`."""


def with_mac(keys: Keys, run: str, place: str, step: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = plain(facts)
    return {**fields, _MAC: keys.mac(run, place, step, canonical_json(fields).decode())}


def has_mac(facts: Mapping[str, Any]) -> bool:
    return _MAC in facts


def authentic(keys: Keys, run: str, place: str, step: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """``facts`` without their MAC. Raises VerificationError where no run of these keys has recorded them so, here."""
    fields = {name: value for name, value in facts.items() if name != _MAC}
    if not keys.is_mac(facts.get(_MAC), run, place, step, canonical_json(fields).decode()):
        raise VerificationError(
            f"the step {step} of {place or 'the run'} in the register is not one that run {run} has recorded",
            hint="the register was altered: restore it from its backup; or `erasure.former_seal_keys` lacks a key; where an "
            "earlier release has recorded it, `deltarelay erase run --adopt-steps` takes it as it is",
        )
    return fields

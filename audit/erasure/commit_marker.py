"""How a commit of the source tells that it erased somebody: by its ``userMetadata``, which names run and requests only.

Every writer of the table can write the same, or copy what another commit says. An erasing commit therefore has a proof as
well, with a MAC under the watch key, and the first commit with a proof is the one of the run. The run records its commits in
the register, where pipelines look them up (``audit.erasure.guard.Watch.erased``).
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit.trail.redaction import object_in
from cdf.sink.guard import ERASURE

if TYPE_CHECKING:
    from audit.erasure.register.protocols import MarkKeys

__all__ = ["erased_person", "erasing_metadata", "erasing_run", "make_proof", "proven"]

_PERSON = "deltarelay_person"
_PROOF = "deltarelay_proof"
_MARK = "deltarelay erasing commit v1"
_NONCE = 32
_MOST_IDS = 20


def erasing_metadata(run: str, requests: Sequence[str], person: int = 0, proof: str | None = None) -> str:
    """For the erasing commit. ``ticket`` is among what a trail keeps (``audit.trail.redaction.told_in``). ``person``:
    for whom, of
    the ``people`` of a table. ``proof``: of ``make_proof``."""
    shown = ", ".join(requests[:_MOST_IDS]) + (
        f" and {len(requests) - _MOST_IDS} more" if len(requests) > _MOST_IDS else ""
    )
    fields = {ERASURE: run, "run": run, "ticket": shown, "purpose": "erasure"}
    more: dict[str, object] = {_PERSON: person} if person else {}
    return json.dumps({**fields, **more, **({_PROOF: proof} if proof else {})})


def make_proof(marker: MarkKeys, run: str, table: str, person: int) -> str:
    """For one try of one commit."""
    nonce = os.urandom(_NONCE // 2).hex()
    return nonce + marker.mark(_MARK, json.dumps([nonce, run, table, person])).hex()


def proven(marker: MarkKeys, user_metadata: str | None, table: str) -> str | None:
    """The proof that a commit of this table was made by the run that it names, for the person that it names; None where it
    has none. A commit that comes after another one with the same proof is a copy."""
    proof = object_in(user_metadata).get(_PROOF)
    if not isinstance(proof, str) or not proof.isascii():
        return None
    nonce, mac = proof[:_NONCE], proof[_NONCE:]
    content = json.dumps([nonce, erasing_run(user_metadata), table, erased_person(user_metadata)])
    made = [mark.hex() for mark in marker.marks(_MARK, content)]
    return proof if any(hmac.compare_digest(mac, one) for one in made) else None


def erasing_run(user_metadata: str | None) -> str | None:
    """The run that a commit says to be of, in order to erase; None for any other commit."""
    run = object_in(user_metadata).get(ERASURE)
    return run if isinstance(run, str) and run else None


def erased_person(user_metadata: str | None) -> int:
    """For whom of the ``people`` of its table a commit of a run erased."""
    person = object_in(user_metadata).get(_PERSON, 0)
    return person if isinstance(person, int) else 0

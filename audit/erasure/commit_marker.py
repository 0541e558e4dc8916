"""Marks erasing commits of the source, in their ``userMetadata``, which names only the run and its requests.

Every writer of the table can write the same metadata, or copy that of another commit. An erasing commit therefore also has a
proof, a MAC under the watch key, and the first commit with a proof is that of the run. The run records its commits in the
register, where pipelines look them up (``audit.erasure.guard.Watch.erased``).
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit.trail.redaction import parse_object
from cdf.listing import list_some
from cdf.sink.guard import ERASURE

if TYPE_CHECKING:
    from audit.erasure.register.secrets import MarkKeys

__all__ = ["erased_person", "erasing_metadata", "erasing_run", "make_proof", "proven"]

_PERSON = "deltarelay_person"
_PROOF = "deltarelay_proof"
_MARK = "deltarelay erasing commit v1"
_NONCE = 32
_MOST_IDS = 20


def erasing_metadata(run: str, requests: Sequence[str], person: int = 0, proof: str | None = None) -> str:
    """Return the metadata of an erasing commit. Trails keep its ``ticket``. ``person``: the place among the ``people`` of
    the table. ``proof``: from ``make_proof``."""
    fields = {ERASURE: run, "run": run, "ticket": list_some(requests, _MOST_IDS), "purpose": "erasure"}
    more: dict[str, object] = {_PERSON: person} if person else {}
    return json.dumps({**fields, **more, **({_PROOF: proof} if proof else {})})


def make_proof(marker: MarkKeys, run: str, table: str, person: int) -> str:
    """Return the proof for one attempt of one commit."""
    nonce = os.urandom(_NONCE // 2).hex()
    return nonce + marker.mark(_MARK, json.dumps([nonce, run, table, person])).hex()


def proven(marker: MarkKeys, user_metadata: str | None, table: str) -> str | None:
    """Return the proof that a commit of this table was made by the run and for the person that it names; None without one.
    A later commit with the same proof is a copy."""
    proof = parse_object(user_metadata).get(_PROOF)
    if not isinstance(proof, str) or not proof.isascii():
        return None
    nonce, mac = proof[:_NONCE], proof[_NONCE:]
    content = json.dumps([nonce, erasing_run(user_metadata), table, erased_person(user_metadata)])
    made = [mark.hex() for mark in marker.marks(_MARK, content)]
    return proof if any(hmac.compare_digest(mac, one) for one in made) else None


def erasing_run(user_metadata: str | None) -> str | None:
    """Return the run that an erasing commit names; None for any other commit."""
    run = parse_object(user_metadata).get(ERASURE)
    return run if isinstance(run, str) and run else None


def erased_person(user_metadata: str | None) -> int:
    """Return the place among the ``people`` of the table for which an erasing commit was made."""
    person = parse_object(user_metadata).get(_PERSON, 0)
    return person if isinstance(person, int) else 0

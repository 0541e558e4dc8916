"""Signing what a trail holds at this moment: a checkpoint over its whole ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from audit.checkpoint import Signer
from audit.errors import ForkedTrail
from audit.proof import Checkpoint, ProofError, VerifierKey, leaf_hash, read_checkpoint, verify_note
from audit.tables import LEDGER
from audit.tree import CompactRange
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from audit.tables import TrailTables

__all__ = ["seal", "sealed"]


def seal(tables: TrailTables, signer: Signer, *, before: Iterable[str] = (), keys: Iterable[VerifierKey] = ()) -> str:
    """A signed note over all records that the ledger has.

    ``before``: notes that were signed earlier, by the signer or one of ``keys``. What contradicts one of them, or has a
    hole, is not signed: ForkedTrail. What is no note by one of them: VerificationError. It reads every record, because the
    hash beside it is no more than a copy.
    """
    return sealed(tables, signer, before=before, keys=keys)[0]


def sealed(
    tables: TrailTables, signer: Signer, *, before: Iterable[str] = (), keys: Iterable[VerifierKey] = ()
) -> tuple[str, int | None]:
    """The same, and the last version of the source that it covers."""
    origin, trusted = tables.origin(), [signer.verifier, *keys]
    try:
        checkpoints = [read_checkpoint(verify_note(note, trusted)[0]) for note in before]
    except ProofError as error:
        raise VerificationError(
            f"what an anchor keeps of the trail at {tables.path} is no checkpoint by a key that is trusted: {error}",
            hint="nothing was signed: somebody else has written there, or a key is missing among keys",
        ) from error
    known: dict[int, set[bytes]] = {}
    for one in checkpoints:
        if one.origin == origin:
            known.setdefault(one.size, set()).add(one.root)
    tree, previous, version = CompactRange(), bytes(32), None
    if not known.pop(0, {tree.root()}) <= {tree.root()}:
        raise _forked(tables, 0)
    rows = tables.now(LEDGER).select("sequence", "version", "record").orderBy("sequence")
    for row in rows.toLocalIterator():
        record = row["record"].encode()
        if row["sequence"] != tree.size or _follows(record) != previous.hex():
            raise _forked(tables, tree.size)
        previous = leaf_hash(record)
        tree.append(previous)
        version = version if row["version"] is None else row["version"]
        if not known.pop(tree.size, {tree.root()}) <= {tree.root()}:
            raise _forked(tables, tree.size)
    if known:
        raise _forked(tables, min(known))
    return signer.sign(Checkpoint(origin, tree.size, tree.root())), version


def _follows(record: bytes) -> str | None:
    """The hash of the record before, as this one tells it."""
    try:
        said = json.loads(record)
    except (ValueError, RecursionError):
        return None
    return said.get("previous") if isinstance(said, dict) else None


def _forked(tables: TrailTables, size: int) -> ForkedTrail:
    return ForkedTrail(
        f"the ledger of the trail at {tables.path} is not what it was: its first {size} records contradict what was signed "
        "over them, or each other",
        hint="nothing was signed: `deltarelay audit verify` tells what is altered",
        size=size,
    )

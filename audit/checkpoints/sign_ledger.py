"""Signing what a trail holds at this moment: a checkpoint over its whole ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from audit.errors import ForkedTrail
from audit.hashing.merkle import CompactRange
from audit.proof import Checkpoint, ProofError, VerifierKey, leaf_hash, read_checkpoint, verify_note
from audit.signing.signer import Signer
from audit.trail.redaction import parse_object
from audit.trail.tables import LEDGER
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from audit.trail.ledger import State
    from audit.trail.tables import TrailTables

__all__ = ["contradiction", "sign_ledger"]


def sign_ledger(
    tables: TrailTables,
    signer: Signer,
    state: State,
    *,
    before: Iterable[str] = (),
    keys: Iterable[VerifierKey] = (),
) -> tuple[str, int | None]:
    """A signed note over the records of the ledger up to ``state``, and the last version of the source that it covers.

    ``before``: notes that were signed earlier, by the signer or one of ``keys``. What contradicts one of them, has a hole,
    or does not end in ``state`` is not signed: ForkedTrail. What is no note by one of them: VerificationError. It reads
    every record, because the hash beside it is no more than a copy.
    """
    from pyspark.sql import functions as F

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
        raise contradiction(tables, 0)
    up_to = F.col("sequence").isNull() | (F.col("sequence") < state.sequence)
    rows = tables.now(LEDGER).where(up_to).select("sequence", "record").orderBy("sequence")
    for row in rows.toLocalIterator():
        record = (row["record"] or "").encode()
        said = parse_object(record)
        if row["sequence"] != tree.size or said.get("previous") != previous.hex():
            raise contradiction(tables, tree.size)
        previous = leaf_hash(record)
        tree.append(previous)
        version = said.get("version", version)
        if not known.pop(tree.size, {tree.root()}) <= {tree.root()}:
            raise contradiction(tables, tree.size)
    if known:
        raise contradiction(tables, min(known))
    if (tree.size, previous) != (state.sequence, state.previous):
        raise contradiction(tables, tree.size)
    return signer.sign(Checkpoint(origin, tree.size, tree.root())), version


def contradiction(tables: TrailTables, size: int) -> ForkedTrail:
    return ForkedTrail(
        f"the ledger of the trail at {tables.path} is not what it was: its first {size} records contradict what was signed "
        "over them, or each other",
        hint="nothing was signed: `deltarelay audit verify` tells what is altered",
        size=size,
    )

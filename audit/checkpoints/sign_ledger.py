"""Signs the ledger of a trail: a checkpoint over all of its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from audit.errors import ForkedTrail
from audit.hashing.merkle import CompactRange
from audit.proof import Checkpoint, ProofError, VerifierKey, leaf_hash, read_checkpoint, verify_note
from audit.trail.redaction import parse_object
from audit.trail.tables import LEDGER
from cdf.errors import VerificationError
from cdf.spark_versions import iterate_rows

if TYPE_CHECKING:
    from audit.signing.signer import Signer
    from audit.trail.ledger_state import State
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
    """Sign the records of the ledger up to ``state``; → the signed note, and the last version of the source that it covers.

    ``before``: notes that were signed earlier, by the signer or one of ``keys``. Raises ForkedTrail if the ledger
    contradicts one of them, has a gap, or does not end in ``state``; VerificationError if one of them is not signed by
    these keys. Reads every record, because the hash stored beside a record is only a copy.
    """
    from pyspark.sql import functions as F

    origin, trusted = tables.origin(), [signer.verifier, *keys]
    try:
        checkpoints = [read_checkpoint(verify_note(note, trusted)[0]) for note in before]
    except ProofError as error:
        raise VerificationError(
            f"an anchor has an entry for the trail at {tables.path} that is not a checkpoint signed by a trusted "
            f"key: {error}",
            hint="nothing was signed: another writer has added the entry, or `keys` lacks a verifier key",
        ) from error
    known: dict[int, set[bytes]] = {}
    for checkpoint in checkpoints:
        if checkpoint.origin == origin:
            known.setdefault(checkpoint.size, set()).add(checkpoint.root)
    tree, previous, version = CompactRange(), bytes(32), None
    if not known.pop(0, {tree.root()}) <= {tree.root()}:
        raise contradiction(tables, 0)
    up_to = F.col("sequence").isNull() | (F.col("sequence") < state.sequence)
    rows = tables.read_current(LEDGER).where(up_to).select("sequence", "record").orderBy("sequence")
    for row in iterate_rows(rows):
        record = (row["record"] or "").encode()
        fields = parse_object(record)
        if row["sequence"] != tree.size or fields.get("previous") != previous.hex():
            raise contradiction(tables, tree.size)
        previous = leaf_hash(record)
        tree.append(previous)
        version = fields.get("version", version)
        if not known.pop(tree.size, {tree.root()}) <= {tree.root()}:
            raise contradiction(tables, tree.size)
    if known:
        raise contradiction(tables, min(known))
    if (tree.size, previous) != (state.sequence, state.previous):
        raise contradiction(tables, tree.size)
    return signer.sign(Checkpoint(origin, tree.size, tree.root())), version


def contradiction(tables: TrailTables, size: int) -> ForkedTrail:
    return ForkedTrail(
        f"the ledger of the trail at {tables.path} was altered: its first {size} records contradict a signed checkpoint, or "
        "each other",
        hint="nothing was signed: `deltarelay audit verify` reports what is altered",
        size=size,
    )

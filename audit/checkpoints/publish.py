"""Signs the ledger, and publishes the checkpoint to the anchors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.anchors.base import AnchorFailure
from audit.checkpoints.anchored import AnchoredCheckpoints, call_anchor
from audit.checkpoints.sign_ledger import contradiction, sign_ledger
from audit.errors import ForkedTrail
from audit.proof import read_checkpoint, verify_note
from audit.trail.ledger_state import State, is_signed_end, read_state_from_records
from cdf.errors import CdfError, ConfigError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.signing.signer import Signer

__all__ = ["SignedCheckpoint", "confirm_end", "publish_checkpoint"]


@dataclass(frozen=True, slots=True)
class SignedCheckpoint(Result):
    """A checkpoint that was signed, and the anchors that keep it."""

    trail: str
    origin: str
    records: int
    version: int | None
    """The last commit of the source that it covers."""
    anchors: tuple[str, ...]
    """The anchors that keep it now."""
    note: str
    missed: tuple[AnchorFailure, ...] = ()
    """The anchors that could not be read or written."""


def publish_checkpoint(
    checkpoints: AnchoredCheckpoints, signer: Signer | None, state: State | None, *, accept: bool
) -> SignedCheckpoint:
    """Sign the ledger, and publish the note to every anchor (``Trail.checkpoint``)."""
    signer = _require_signer(signer)
    try:
        return _publish(checkpoints, signer, state, accept=accept)
    except ForkedTrail:  # a runner may have published a larger checkpoint meanwhile: compare with that one
        return _publish(checkpoints, signer, state, accept=accept)


def confirm_end(checkpoints: AnchoredCheckpoints, signer: Signer | None, state: State) -> None:
    """Raise ForkedTrail unless a trusted key has signed the end of the ledger (``Trail.confirm``)."""
    failures: dict[str, CdfError] = {}
    if checkpoints.anchors:
        _confirm(checkpoints, signer, state, checkpoints.read_newest(failures), failures)


def _publish(
    checkpoints: AnchoredCheckpoints, signer: Signer, state: State | None, *, accept: bool
) -> SignedCheckpoint:
    tables = checkpoints.tables
    failures: dict[str, CdfError] = {}
    before = checkpoints.read_newest(failures)
    if state is None:
        state = read_state_from_records(tables)
        if checkpoints.anchors and not accept:
            _confirm(checkpoints, signer, state, before, failures)
    note, version = sign_ledger(tables, signer, state, before=before, keys=checkpoints.keys)
    checkpoint = read_checkpoint(verify_note(note, [signer.verifier])[0])
    published = []
    for named in checkpoints.anchors:
        if named.name not in failures:
            call_anchor(failures, named, lambda named: named.anchor.publish(checkpoint.origin, note))
        if named.name not in failures:
            published.append(named.name)
    fork = next((error for error in failures.values() if isinstance(error, ForkedTrail)), None)
    if fork is not None or (failures and not published):
        raise fork or next(iter(failures.values()))
    return SignedCheckpoint(
        trail=tables.path,
        origin=checkpoint.origin,
        records=checkpoint.size,
        version=version,
        anchors=tuple(published),
        note=note,
        missed=tuple(AnchorFailure(name, error) for name, error in failures.items()),
    )


def _confirm(
    checkpoints: AnchoredCheckpoints,
    signer: Signer | None,
    state: State,
    before: Sequence[str],
    failures: Mapping[str, CdfError],
) -> None:
    """``before``: the newest trusted note of each anchor that could be read. ``failures``: the errors of the others."""
    tables = checkpoints.tables
    if any((checkpoints.trusted_size(note) or 0) > state.sequence for note in before):
        raise contradiction(tables, state.sequence)
    if is_signed_end(checkpoints.keys, tables, state):
        return
    if any(checkpoints.trusted_size(note) == state.sequence for note in before):
        _, version = sign_ledger(tables, _require_signer(signer), state, before=before, keys=checkpoints.keys)
        if version == state.version:
            return
    for error in failures.values():
        raise error
    raise ForkedTrail(
        f"the end of the ledger of the trail at {tables.path} is not signed by a trusted key: its last records may be "
        "forged, and no event or record is written or signed after them",
        hint="inspect them with `deltarelay audit verify`. `deltarelay audit checkpoint --accept` signs a trail that was "
        "begun without signing_key, in its present state; after a change of the signing key, add the former verifier key to "
        "`keys`",
        size=state.sequence,
    )


def _require_signer(signer: Signer | None) -> Signer:
    if signer is None:
        raise ConfigError("the trail has no signing key", hint="set signing_key; `deltarelay audit keygen` creates one")
    return signer

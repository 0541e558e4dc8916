"""``Trail``: the trail as its users see it: sign and publish checkpoints, verify, prove, compact.

``audit.trail`` has the tables, ``audit.queries`` the questions that can be asked. Only the sink writes events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from audit.checkpoints.anchored import AnchoredCheckpoints, FoundCheckpoint
from audit.checkpoints.event_proof import prove_event, read_columns_of_version
from audit.checkpoints.publish import SignedCheckpoint, confirm_end, publish_checkpoint
from audit.files import find_special_file
from audit.trail.column_history import Column
from audit.trail.compaction import Compaction, compact_files
from audit.trail.lease import Lease
from audit.trail.ledger_state import State, read_state
from audit.trail.tables import TrailTables
from audit.verification import TrailVerification, VerifiedState, verify_trail
from cdf.errors import ConfigError, VerificationError
from cdf.source.single_writer import COMMITS_SETTING, require_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.anchors.base import AnchorFailure, NamedAnchor
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import States
    from audit.proof import VerifierKey
    from audit.signing.signer import Signer

__all__ = ["Trail"]


class Trail:
    """The trail below ``path``. Needs a ``signer`` to sign; ``keys`` are trusted besides the signer's own key."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        signer: Signer | None = None,
        keys: Sequence[VerifierKey] = (),
        anchors: Sequence[NamedAnchor] = (),
        states: States | None = None,
        sealing: ColumnEncryption | None = None,
    ) -> None:
        """``states``: key states of the registry (``Registry.states``), to decrypt values; None: values stay encrypted.
        ``sealing``: the configured encryption, by which a person's rows are found without decrypting all rows."""
        self.path = path.rstrip("/")
        self.states, self.sealing = states, sealing
        self.tables = TrailTables(spark, self.path)
        self.anchors = tuple(anchors)
        self._signer = signer
        self._keys = tuple(keys) if signer is None else (signer.verifier, *keys)

    def require_tables(self) -> TrailTables:
        """Return the tables. Raises ConfigError where there is no trail."""
        if not self.tables.exist():
            raise ConfigError(f"there is no trail at {self.path}", hint="`deltarelay run` creates it")
        return self.tables

    def columns(self, version: int | None = None) -> tuple[Column, ...]:
        """Where the payload stores the values of each column; as of a version of the source, or now."""
        if version is None:
            return read_state(self.require_tables()).columns
        return read_columns_of_version(self.tables, version)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────

    def checkpoint(self, state: State | None = None, *, accept: bool = False) -> SignedCheckpoint:
        """Sign the ledger, and publish the checkpoint to every anchor.

        ``state``: the state of the ledger, from the runner that wrote it. Without it the end of the ledger must be confirmed
        (``confirm``), unless the caller accepts the ledger as it is (``accept``). Raises ForkedTrail if the ledger
        contradicts an earlier checkpoint; then nothing is signed. An anchor that fails does not affect the others; if no
        anchor has the checkpoint in the end, the error is raised.
        """
        return publish_checkpoint(self._checkpoints(), self._signer, state, accept=accept)

    def confirm(self, state: State) -> None:
        """Check that the end of the ledger was written with a trusted key, before a runner continues or signs it.

        Either a trusted key has signed the end, or an anchor has a checkpoint of exactly this ledger. Otherwise raises
        ForkedTrail. Without anchors nothing is checked.
        """
        confirm_end(self._checkpoints(), self._signer, state)

    def read_checkpoints(self, *, least: int = 0) -> tuple[list[FoundCheckpoint], list[AnchorFailure]]:
        """→ every checkpoint over at least so many records at any anchor; and the anchors that cannot be read."""
        return self._checkpoints().read_all(least=least)

    def _checkpoints(self) -> AnchoredCheckpoints:
        return AnchoredCheckpoints(self.require_tables(), self._keys, self.anchors)

    # ── verification and proofs ──────────────────────────────────────────────────────────────────────────────────

    def verify(
        self,
        *,
        since: VerifiedState | None = None,
        before: VerifiedState | None = None,
        extra: Sequence[tuple[str, str]] = (),
        origin: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> tuple[TrailVerification, VerifiedState | None]:
        """Verify everything, or what came after ``since``; → the result, and the state for the next verification.

        ``before``: an earlier verification, which must be the beginning of this trail. ``extra``: checkpoints of the
        caller, each as the name of its source and the note. ``origin``: the expected trail.
        """
        local = "://" not in self.path
        if local and (special := find_special_file(Path(self.path.removeprefix("file:")))) is not None:
            raise VerificationError(
                f"{special} is not a regular file: reading it could block forever",
                hint="find out who created it, restore the file from a backup, and verify again",
            )
        checkpoints = self._checkpoints()
        found, failures = checkpoints.read_all(least=0 if since is None or extra else since.size)
        return verify_trail(
            checkpoints.tables,
            [*found, *(checkpoints.parse(note, where) for where, note in extra)],
            since=since,
            before=before,
            brought=bool(extra),
            anchored=bool(self.anchors),
            unreachable=failures,
            origin=origin,
            keys=self._keys,
            progress=progress,
        )

    def prove(self, version: int, index: int, *, show_row: bool = False) -> str:
        """Return the proof of one event, as a text file for ``audit.proof``; with the row's values only if ``show_row``.

        Raises VerificationError if the proof would not hold, because the trail differs from what was signed.
        """
        return prove_event(self._checkpoints(), version, index, show_row=show_row)

    # ── maintenance ──────────────────────────────────────────────────────────────────────────────────────────────

    def optimize(self, key: Sequence[str], *, progress: Callable[[str], None] | None = None) -> Compaction:
        """Rewrite the files: few, with the values of one record close together. ``key``: columns of the source.

        Raises ConfigError where nothing protects S3 from concurrent writers. With the setting ``single_writer`` the call
        takes the trail's lease, so that no runner writes meanwhile (LeaseHeld).
        """
        tables = self.require_tables()
        require_writer(tables.spark, self.path)
        with contextlib.ExitStack() as stack:
            if tables.spark.conf.get(COMMITS_SETTING, None) == "single_writer":
                stack.callback(Lease(tables.spark, self.path, target=self.path).close)
            return compact_files(tables, self.columns(), key, progress=progress)

"""Initial load and reload of an open target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.errors import raise_without_context
from cdf.errors import KeyViolation, WindowOutOfOrder
from cdf.sink import Applied, Position, at_version
from cdf.timing import timed
from connectors.postgres.load.initial_load import (
    analyze,
    copy_snapshot,
    explain_key_violation,
    place_loaded_rows,
    prepare_empty_target,
)
from connectors.postgres.load.reload import ReloadPlan, reload_target
from connectors.postgres.staging.columns import Staged
from connectors.postgres.steps.open_target import OpenTarget
from connectors.postgres.write.record_writer import Written

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot

__all__ = ["SnapshotLoader"]


class SnapshotLoader:
    def __init__(self, target: OpenTarget) -> None:
        self._target = target
        self._session, self._settings = target.session, target.settings

    def load(self, snapshot: Snapshot) -> Applied:
        target = self._target
        if target.position.version is not None:
            raise WindowOutOfOrder(
                f"{self._session.target} is filled already and {at_version(target.position.version)}",
                hint="`deltarelay run` continues from there",
            )
        seconds: dict[str, float] = {}
        target.begin_history("load", snapshot.version, snapshot.version, seconds=seconds)
        mapped = self._settings.columns.map_snapshot(snapshot)
        rejected = 0
        if self._settings.modes.writes_dead_letters:
            staged, written = self._load_as_window(mapped, seconds)
            ddl, rejected = written.ddl, written.rejected
        else:
            with timed(seconds, "copy"):
                staged = copy_snapshot(self._session, mapped, small_bytes=self._settings.small_window_bytes)
            with timed(seconds, "apply"):
                ddl = place_loaded_rows(self._session, mapped, staged.rows, self._settings.own)
        target.position = Position(version=snapshot.version, table_id=snapshot.table_id)
        analyze(self._session)
        return Applied(position=snapshot.version, inserts=staged.rows, rejected=rejected, ddl=ddl, seconds=seconds)

    def _load_as_window(self, snapshot: Snapshot, seconds: dict[str, float]) -> tuple[Staged, Written]:
        """Apply the rows as the inserts of a window, because a window writer can store dead letters."""
        writer, window = self._target.writer, snapshot.as_inserts()
        with timed(seconds, "copy"):
            try:
                staged = writer.stage(window)
            except KeyViolation:
                raise_without_context(explain_key_violation(snapshot))
        with timed(seconds, "apply"):
            written = writer.commit(
                window,
                staged,
                expected=None,
                before=lambda connection: prepare_empty_target(connection, self._session, snapshot, self._settings.own),
            )
        return staged, written

    def reload(self, snapshot: Snapshot) -> Applied:
        target = self._target
        seconds: dict[str, float] = {}
        target.begin_history("reload", snapshot.version, snapshot.version, seconds=seconds)
        mapped = self._settings.columns.map_snapshot(snapshot)
        plan = ReloadPlan(
            own=self._settings.own,
            deletes=self._settings.modes.deletes,
            before=target.position,
            small_bytes=self._settings.small_window_bytes,
        )
        rows, ddl = reload_target(self._session, mapped, plan, seconds=seconds)
        target.position = Position(version=snapshot.version, table_id=snapshot.table_id)
        if "merge" in seconds:
            analyze(self._session)
        return Applied(position=snapshot.version, inserts=rows, ddl=ddl, seconds=seconds)

"""Applying a window to an open target, by its changes or by a copy of the table, and replaying dead letters."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.errors import Fenced, KeyViolation, SourceError, TableReplaced, WindowOutOfOrder
from cdf.sink import Applied, Conflicts, Position, at_version
from cdf.timing import timed
from connectors.postgres.load import copy_threshold
from connectors.postgres.load.copy_threshold import ApplyMethod, choose_method
from connectors.postgres.load.open_readers import InUse
from connectors.postgres.load.reload import ReloadPlan, reload_target
from connectors.postgres.state.dead_letters import read_key_digests
from connectors.postgres.steps.open_target import OpenTarget

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot, Window

__all__ = ["WindowApplier"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]


class WindowApplier:
    def __init__(self, target: OpenTarget) -> None:
        self._target = target
        self._session, self._settings = target.session, target.settings
        self._following: Window | None = None
        self._prefetched: tuple[Window, Window] | None = None
        """A window that may have been staged in advance, as announced and with the target's names."""

    def reset(self) -> None:
        self._following = self._prefetched = None

    def announce(self, window: Window) -> None:
        self._following = window

    def apply(self, window: Window) -> Applied:
        following, self._following = self._following, None
        target = self._target
        if (replayed := self._check_order(window)) is not None:
            return replayed
        seconds: dict[str, float] = {}
        target.begin_history(
            "window",
            window.first,
            window.last,
            seconds=seconds,
            rows_in=window.rows_in,
            change_bytes=window.change_bytes,
            schema_changes=[str(one) for one in window.drift if self._settings.columns.map_change(one) is not None],
        )
        is_prefetched = self._prefetched is not None and self._prefetched[0] is window
        mapped = (
            self._prefetched[1] if self._prefetched and is_prefetched else self._settings.columns.map_window(window)
        )
        if (method := self.choose_method(mapped)) != "changes":
            applied = self._apply_copy(mapped, method, seconds)
            if applied is not None:
                return applied
        with timed(seconds, "stage"):
            if self._settings.modes.key_changes == "refuse":
                window.refuse_key_changes()
            staged = target.writer.stage(mapped)
            window.confirm()
        self._start_prefetch(following)
        with timed(seconds, "apply"):
            written = target.writer.commit(mapped, staged, expected=target.position.version)
        target.position = Position(version=window.last, table_id=window.table_id)
        return Applied(
            position=window.last,
            inserts=staged.inserts,
            updates=staged.updates,
            deletes=staged.deletes,
            conflicts=written.conflicts,
            rejected=written.rejected,
            ddl=written.ddl,
            seconds=seconds,
        )

    def _check_order(self, window: Window) -> Applied | None:
        """The result if the window was applied before. Raises if it does not follow the position."""
        position, name = self._target.position, self._session.target
        if position.table_id is not None and window.table_id != position.table_id:
            raise TableReplaced(
                f"the window belongs to another table than the one {name} was filled from",
                hint="name a new target table for it, or rebuild this one with `run --reload`",
            )
        if position.version is not None and window.last <= position.version:
            return Applied(position=position.version, replayed=True)
        if position.version is None or window.first != position.version + 1:
            raise WindowOutOfOrder(
                f"a window from version {window.first} does not follow the position of {name}, which "
                f"{at_version(position.version)}",
                hint="load a snapshot first, then apply from the next version on",
                position=position.version,
            )
        return None

    def _start_prefetch(self, window: Window | None) -> None:
        if window is None:
            return
        mapped = self._settings.columns.map_window(window)
        if self.choose_method(mapped) == "changes":  # a copy needs no staging
            self._prefetched = window, mapped
            self._target.writer.stager.start_prefetch(mapped)

    # ── by a copy of the table ───────────────────────────────────────────────────────────────────────────────────

    def choose_method(self, window: Window, connection: Connection | None = None) -> ApplyMethod:
        """``window`` has the target's column names."""
        settings, modes = self._settings, self._settings.modes
        ignores_changes = settings.conflicts != "refuse" and not settings.own
        is_plain = modes.deletes == "hard" and modes.key_changes == "follow" and not modes.writes_dead_letters
        if not (ignores_changes and is_plain) or window.change_bytes < copy_threshold.MIN_BYTES:
            return "changes"  # a copy does not show single changes
        with self._session.errors("inspecting the target"):
            return choose_method(connection or self._session.main(), self._session.target, window)

    def _apply_copy(self, window: Window, method: ApplyMethod, seconds: dict[str, float]) -> Applied | None:
        """Apply the window by a copy of the table at its last version. None: the copy is not possible, or other sessions
        prevent it."""
        target = self._target
        log.info(
            "copying the table, which is cheaper than applying the changes",
            extra={"target": str(self._session.target), "way": method},
        )
        try:
            snapshot = self._settings.columns.map_snapshot(window.snapshot())
            with timed(seconds, "count"):  # the copy itself does not show what has changed
                counts, conflicts = window.count_net()
            plan = ReloadPlan(
                own=(),
                deletes="hard",
                before=target.position,
                action=None,
                must_merge=method == "merge",
                confirm=window.confirm,
                counts={**counts, "conflicts": conflicts},
            )
            rows, ddl = reload_target(self._session, snapshot, plan, seconds=seconds)
        except (TableReplaced, Fenced):
            raise
        except (InUse, KeyViolation, SourceError) as error:
            # Files that only the copy needs may be deleted; a duplicate key does not prevent applying the changes
            log.info(
                "copy not possible: applying the changes",
                extra={"target": str(self._session.target), "code": error.code},
            )
            self._session.drop("load")
            seconds.clear()
            return None
        target.position = Position(version=window.last, table_id=window.table_id)
        return Applied(
            position=window.last,
            inserts=counts["inserts"],
            updates=counts["updates"],
            deletes=counts["deletes"],
            conflicts=Conflicts(within_window=conflicts),
            copied=rows,
            ddl=ddl,
            seconds=seconds,
        )

    # ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, snapshot: Snapshot) -> Applied:
        """Try all dead letters again, with the rows that the source has at the position."""
        target, name = self._target, self._session.target
        self._session.require_lease()
        if target.position.version != snapshot.version:
            raise WindowOutOfOrder(
                f"{name} {at_version(target.position.version)}, not at {snapshot.version}",
                hint="nothing was changed: replay again",
            )
        seconds: dict[str, float] = {}
        with self._session.errors("reading the dead letters"):
            digests = read_key_digests(self._session.main(), str(name))
        window = self._settings.columns.map_snapshot(snapshot).with_keys(digests).as_inserts()
        with timed(seconds, "stage"):
            staged = target.writer.stage(window)
        with timed(seconds, "apply"):
            written, deleted = target.writer.replay(window, staged, expected=snapshot.version, digests=digests)
        return Applied(
            position=snapshot.version,
            inserts=staged.rows,
            deletes=deleted,
            rejected=written.rejected,
            ddl=written.ddl,
            seconds=seconds,
        )

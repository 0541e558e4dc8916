"""Sinks that each break one promise, and which tests of the suite must notice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, CONFLICTS, DELETE, INSERT, UPDATE, UPDATE_POSTIMAGE
from cdf.errors import SinkUnavailable, SourceError
from cdf.sink import Applied, Conflicts, Inspection, Position, Source
from cdf.testing import MemorySink, MemoryStore
from cdf.testing.memory import Contents

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot, Window

__all__ = ["BROKEN", "Broken"]

Row = dict[str, Any]


class PutsBeforeRemoves(MemorySink):
    """Trusts the order in which the feed's rows come, inserts first."""

    def apply(self, window: Window) -> Applied:
        rows = [row.asDict() for row in window.read().collect()]
        rows.sort(key=lambda row: (row[COMMIT_VERSION], row[CHANGE_TYPE] not in (INSERT, UPDATE_POSTIMAGE)))
        held = dict(self.store.contents.rows)
        for row in rows:
            key = tuple(row[name] for name in window.key)
            if row[CHANGE_TYPE] in (INSERT, UPDATE_POSTIMAGE):
                held[key] = row
            else:
                held.pop(key, None)
        position = Position(window.last, window.table_id)
        self.store.swap(self._epoch, replace(self.store.contents, position=position, rows=held))
        return Applied(window.last)


class PositionFirst(MemorySink):
    """Moves its position, then takes in the rows."""

    def apply(self, window: Window) -> Applied:
        held = self.store.contents
        if not self._is_replay(held.position, window):
            self.store.contents = replace(held, position=Position(window.last, window.table_id))
            try:
                rows = [row.asDict() for row in window.net().collect()]
            except Exception as error:
                raise window.failure(error) from error
            after, _ = self._merge(self.store.contents, rows, window)
            self.store.swap(self._epoch, after)
        return Applied(window.last)


class ForgetsDeletes(MemorySink):
    def _merge(self, held: Contents, rows: Iterable[Row], window: Window) -> tuple[Contents, Conflicts]:
        return super()._merge(held, [row for row in rows if row[CHANGE_TYPE] != DELETE], window)


class DoublesOnReplay(MemorySink):
    """Takes every window for a new one."""

    def _is_replay(self, position: Position, window: Window) -> bool:
        return position.version is None and super()._is_replay(position, window)


class AcceptsGaps(MemorySink):
    def _is_replay(self, position: Position, window: Window) -> bool:
        return position.version is not None and window.last <= position.version


class BelievesAnyTable(MemorySink):
    def _is_replay(self, position: Position, window: Window) -> bool:
        return super()._is_replay(replace(position, table_id=window.table_id), window)


class SkipsEmptyWindows(MemorySink):
    def apply(self, window: Window) -> Applied:
        return super().apply(window) if window.has_changes else Applied(window.last)


class IgnoresTheFence(MemorySink):
    def __init__(self, store: MemoryStore) -> None:
        store.check = lambda _: None  # type: ignore[method-assign]
        super().__init__(store)


class LooksAtTheFenceOnlyFirst(MemorySink):
    """Knows at the start of a window that it is the one, and believes it until the end."""

    def _make_durable(self, contents: Contents) -> None:
        self.store.swap(self.store.epoch, contents)


class GivesBackAnyLease(MemorySink):
    def close(self) -> None:
        self.store.release_lease(self.store.epoch)


class TakesTheLeaseToLook(MemorySink):
    def inspect(self, source: Source) -> Inspection:
        self.store.expire_lease()
        self.store.acquire_lease("onlooker")
        return super().inspect(source)


class LoadsRowByRow(MemorySink):
    """Each row is durable by itself."""

    def load(self, snapshot: Snapshot) -> Applied:
        try:
            for row in snapshot.read().toLocalIterator():
                held = self.store.contents
                key = tuple(row[name] for name in snapshot.key)
                self.store.swap(self._epoch, replace(held, rows={**held.rows, key: row.asDict()}))
        except Exception as error:
            raise snapshot.failure(error) from error
        position = Position(snapshot.version, snapshot.table_id)
        self.store.swap(self._epoch, replace(self.store.contents, position=position, schema=snapshot.schema))
        return Applied(snapshot.version)


class EmptyIsNull(MemorySink):
    def _make_durable(self, contents: Contents) -> None:
        rows = {
            key: {name: None if value == "" else value for name, value in row.items()}
            for key, row in contents.rows.items()
        }
        super()._make_durable(replace(contents, rows=rows))


class ConcatenatesKeys(MemorySink):
    def _make_durable(self, contents: Contents) -> None:
        glued = {"".join(map(str, key)): row for key, row in contents.rows.items()}
        rows = {key: row for key, row in contents.rows.items() if glued["".join(map(str, key))] is row}
        super()._make_durable(replace(contents, rows=rows))


class ByColumnNumber(MemorySink):
    """Puts the values where the columns stood when the table was loaded."""

    def _merge(self, held: Contents, rows: Iterable[Row], window: Window) -> tuple[Contents, Conflicts]:
        names = self.store.contents.schema.names  # type: ignore[union-attr]
        moved = [{**row, **dict(zip(names, (row[name] for name in window.schema.names), strict=False))} for row in rows]
        return super()._merge(held, moved, window)


class CountsNoConflicts(MemorySink):
    def _merge(self, held: Contents, rows: Iterable[Row], window: Window) -> tuple[Contents, Conflicts]:
        return super()._merge(held, rows, window)[0], Conflicts()


class LosesUpdatesOfAbsentRows(MemorySink):
    """An UPDATE statement for each update: a row that is not there stays away, and nobody hears of it."""

    def _merge(self, held: Contents, rows: Iterable[Row], window: Window) -> tuple[Contents, Conflicts]:
        found = [row for row in rows if row[CHANGE_TYPE] != UPDATE or (row["id"],) in held.rows]
        return super()._merge(held, found, window)


class ToleratesViolations(MemorySink):
    """Reduces the changes by itself, and lets the last one win whatever came before."""

    def apply(self, window: Window) -> Applied:
        if self._is_replay(self.store.contents.position, window):
            return Applied(window.last, replayed=True)
        rows = [{**row.asDict(), CONFLICTS: 0} for row in window.read().collect()]
        after, _ = self._merge(self.store.contents, rows, window)
        self.store.swap(self._epoch, replace(after, position=Position(window.last, window.table_id)))
        return Applied(window.last)


class KeepsThePositionToItself(MemorySink):
    """The position is an attribute, and dies with the process."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._mine = Position()

    def inspect(self, source: Source) -> Inspection:
        return replace(super().inspect(source), position=self._mine)

    def _make_durable(self, contents: Contents) -> None:
        super()._make_durable(contents)
        self._mine = contents.position


class QuotesTheDriver(MemorySink):
    """Pastes the cause into its own message."""

    def apply(self, window: Window) -> Applied:
        try:
            return super().apply(window)
        except SourceError as error:
            raise SinkUnavailable(f"the window failed: {error.__cause__}") from error


class LetsSparkSpeak(MemorySink):
    """Lets foreign exceptions out."""

    def apply(self, window: Window) -> Applied:
        try:
            return super().apply(window)
        except SourceError as error:
            raise error.__cause__ or error from None


class AppendsAgain(MemorySink):
    """A history that asks for no position."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, holds="history")

    def _is_replay(self, *_: object) -> bool:
        return False


class MixesUpTheOrder(MemorySink):
    """A history whose rows come as the tasks finish."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, holds="history")

    def _make_durable(self, contents: Contents) -> None:
        known = len(self.store.contents.changes)
        changes = contents.changes[:known] + contents.changes[known:][::-1]
        super()._make_durable(replace(contents, changes=changes))


class MergesOnReload(MemorySink):
    """Keeps what the snapshot does not have."""

    def reload(self, snapshot: Snapshot) -> Applied:
        before = self.store.contents
        applied = super().reload(snapshot)
        after = self.store.contents
        self.store.contents = replace(after, rows={**before.rows, **after.rows})
        return applied


class ReloadsUnderTheOldId(MemorySink):
    def reload(self, snapshot: Snapshot) -> Applied:
        old = self.store.contents.position.table_id or snapshot.table_id
        return super().reload(replace(snapshot, table_id=old))


class NeverGoesBack(MemorySink):
    """Takes a reload for something that only goes forward."""

    def reload(self, snapshot: Snapshot) -> Applied:
        stands = self.store.contents.position.version
        if stands is not None and snapshot.version <= stands:
            return Applied(stands, replayed=True)
        return super().reload(snapshot)


class EmptiesFirst(MemorySink):
    """Makes room before it knows what will come."""

    def reload(self, snapshot: Snapshot) -> Applied:
        self.store.check(self._epoch)
        self.store.contents = Contents()
        return super().reload(snapshot)


class ReloadsUnfenced(MemorySink):
    def reload(self, snapshot: Snapshot) -> Applied:
        self._epoch = self.store.epoch
        self.store.owner = self._owner
        return super().reload(snapshot)

    def _make_durable(self, contents: Contents) -> None:
        self._epoch = self.store.epoch
        super()._make_durable(contents)


class ReloadsWithForce(MemorySink):
    """Asks nobody who holds the lease."""

    def open_to_reload(self, source: Source) -> Position:
        self.store.expire_lease()
        return super().open_to_reload(source)


class ReloadsOnlyWhatIsFilled(MemorySink):
    def reload(self, snapshot: Snapshot) -> Applied:
        if self.store.contents.position.version is None:
            return Applied(snapshot.version)
        return super().reload(snapshot)


@dataclass(frozen=True, slots=True)
class Broken:
    """A sink and the tests that have to fail for it."""

    sink: type[MemorySink]
    caught_by: tuple[str, ...]


BROKEN = [
    Broken(PutsBeforeRemoves, ("keys_are_swapped_within_one_version", "delete_and_insert_of_one_key_in_one_version")),
    Broken(PositionFirst, ("a_window_whose_rows_fail_leaves_everything_and_is_applied_after_repair",)),
    Broken(ForgetsDeletes, ("inserts_updates_and_deletes_arrive", "a_key_change_moves_the_row")),
    Broken(DoublesOnReplay, ("the_same_window_again_changes_nothing",)),
    Broken(
        AcceptsGaps,
        (
            "a_window_with_a_gap_before_it_is_refused",
            "a_window_that_overlaps_the_position_is_refused",
            "an_empty_state_takes_no_window",
        ),
    ),
    Broken(BelievesAnyTable, ("the_window_of_another_table_is_refused",)),
    Broken(SkipsEmptyWindows, ("a_window_without_rows_moves_the_position",)),
    Broken(IgnoresTheFence, ("a_stale_runner_cannot_apply", "a_stale_runner_cannot_load")),
    Broken(LooksAtTheFenceOnlyFirst, ("a_runner_overtaken_in_the_midst_of_a_window_is_fenced",)),
    Broken(GivesBackAnyLease, ("a_second_runner_is_refused_while_the_first_is_alive", "a_stale_runner_cannot_apply")),
    Broken(TakesTheLeaseToLook, ("inspecting_changes_nothing",)),
    Broken(
        LoadsRowByRow,
        (
            "an_interrupted_load_leaves_nothing_and_is_called_again",
            "load_refuses_null_and_duplicate_keys_with_their_number",
            "loading_twice_is_refused",
        ),
    ),
    Broken(EmptyIsNull, ("null_and_the_empty_string_are_two_values", "an_update_may_set_values_to_null_and_to_empty")),
    Broken(ConcatenatesKeys, ("every_column_of_a_composite_key_counts",)),
    Broken(ByColumnNumber, ("columns_are_found_by_their_exact_name",)),
    Broken(CountsNoConflicts, ("conflicts_with_the_target_are_counted", "conflicts_within_the_window_are_counted")),
    Broken(LosesUpdatesOfAbsentRows, ("conflicts_with_the_target_are_counted",)),
    Broken(
        ToleratesViolations,
        ("two_puts_of_one_key_in_one_version_are_refused_whole", "a_null_key_is_refused_whole"),
    ),
    Broken(KeepsThePositionToItself, ("a_new_instance_sees_the_position_of_each_step",)),
    Broken(QuotesTheDriver, ("errors_carry_no_values",)),
    Broken(LetsSparkSpeak, ("errors_carry_no_values",)),
    Broken(AppendsAgain, ("the_same_window_again_changes_nothing", "a_window_with_a_gap_before_it_is_refused")),
    Broken(MixesUpTheOrder, ("every_change_is_kept_once_in_the_order_of_its_key",)),
    Broken(MergesOnReload, ("a_reload_makes_the_target_equal_the_snapshot", "a_reload_may_leave_nothing")),
    Broken(ReloadsUnderTheOldId, ("a_reload_takes_another_table",)),
    Broken(NeverGoesBack, ("a_reload_may_go_back_in_versions",)),
    Broken(
        EmptiesFirst,
        (
            "an_interrupted_reload_changes_nothing_and_is_called_again",
            "a_reload_refuses_keys_that_identify_no_row",
        ),
    ),
    Broken(
        ReloadsUnfenced,
        ("a_runner_overtaken_in_the_midst_of_a_reload_is_fenced", "nothing_is_reloaded_unopened"),
    ),
    Broken(ReloadsWithForce, ("a_reload_waits_for_its_turn",)),
    Broken(ReloadsOnlyWhatIsFilled, ("a_reload_of_an_empty_target_fills_it",)),
]

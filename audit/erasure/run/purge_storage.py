"""Sixth step: remove for good what storage still holds, as far as retention allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from audit.erasure.erase.purge import purge_table
from audit.erasure.errors import SinkBehind
from audit.erasure.register.records import StepName, pipeline_place
from audit.erasure.run.tasks import make_task
from audit.erasure.sink_contract import PurgeResult

if TYPE_CHECKING:
    from audit.erasure.model import PersonalTable
    from audit.erasure.run.context import RunContext
    from audit.erasure.run.destroy_keys import DestroyKeys

__all__ = ["PurgeStorage"]


class PurgeStorage:
    def __init__(self, context: RunContext, keys: DestroyKeys) -> None:
        self._context, self._keys = context, keys

    def is_done(self) -> bool:
        context = self._context
        places = [one.table for one in context.tables_to_erase()]
        places += [
            pipeline_place(copy.pipeline)
            for _, copy in context.copies_to_erase()
            if copy.erasure is not None and copy.version() is not None
        ]
        return all(context.steps.has(place, StepName.PURGE) for place in places)

    def run(self) -> list[PurgeResult]:
        """Return the purges that must wait.

        A completed purge is repeated where the scan after it found something, such as the files of an aborted write.
        """
        context = self._context
        scanned = context.scanned_requests()
        states = {one.state for one in context.register.requests(context.ids) if one.id not in scanned}
        is_repeated = states == {"purged"}
        waits = []
        for one, copy in context.copies_to_erase():
            if (erasure := copy.erasure) is not None and copy.version() is not None:
                task = make_task(context, self._keys, one, copy.key)
                task = replace(task, versions=context.erasing_versions(one.table))
                work = partial(erasure.purge, task, now=context.now)
                waits += self._purge(pipeline_place(copy.pipeline), work, is_repeated)
        waits += self._purge_tables(is_repeated)
        if not waits:
            context.reach("purged")
        return waits

    def _purge_tables(self, is_repeated: bool) -> list[PurgeResult]:
        context, waits = self._context, []
        behind: list[SinkBehind] = []
        for one in context.tables_to_erase():
            work = partial(
                purge_table,
                context.spark,
                one.table,
                # A table without rows of the person may have a history with such rows
                versions=context.erasing_versions(one.table) or (context.resolved_versions()[one.table],),
                positions=self._positions(one.table),
                now=context.now,
                immediately=context.immediate,
                personal=self._personal_columns(one),
                once_more=is_repeated,
            )
            try:
                waits += self._purge(one.table, work, is_repeated)
            except SinkBehind as error:  # report all tables at once: one run of the pipelines serves all of them
                behind.append(error)
        if behind:
            raise SinkBehind(
                "; ".join(one.message for one in behind),
                hint=behind[0].hint,
                behind=sorted({name for one in behind for name in one.fields["behind"]}),
            )
        return waits

    def _personal_columns(self, one: PersonalTable) -> set[str]:
        """Return the columns whose values in the name of a partition's folder could identify a person."""
        return {
            name
            for person in one.people
            for name in (*person.personal, *self._context.graph.subjects[person.subject].identifiers, person.column)
        }

    def _positions(self, table: str) -> dict[str, int]:
        """Return the positions of the table's sinks; an empty target starts with the present state of the table."""
        found = {copy.pipeline: copy.version() for one, copy in self._context.copies_to_erase() if one.table == table}
        return {pipeline: version for pipeline, version in found.items() if version is not None}

    def _purge(self, place: str, work: Callable[[], PurgeResult], is_repeated: bool) -> list[PurgeResult]:
        context, steps = self._context, self._context.steps
        is_done = steps.has(place, StepName.PURGE)
        if is_done and not is_repeated:
            return []
        context.progress(f"purging {place}")
        before = steps.read(place, StepName.PURGING) or {"done": {}, "at_work": False, "interrupted": False}
        interrupted = before["interrupted"] or before["at_work"]
        steps.replace(place, StepName.PURGING, {**before, "at_work": True, "interrupted": interrupted})
        try:
            result = work()
        except SinkBehind:  # raised before anything is removed
            steps.replace(place, StepName.PURGING, {**before, "at_work": False, "interrupted": interrupted})
            raise
        counts = Counter(before["done"])
        counts.update(result.done)
        facts = {"done": dict(counts), "at_work": False, "interrupted": interrupted}
        steps.replace(place, StepName.PURGING, facts)
        if result.waits_until is not None:
            return [replace(result, waits_for=f"{place}: {result.waits_for}")]
        if not is_done:
            facts = {"done": dict(result.done), "out_of_reach": list(result.out_of_reach)}
            steps.record(place, StepName.PURGE, facts)
        return []

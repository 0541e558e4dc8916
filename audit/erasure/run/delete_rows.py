"""Fourth step: delete or empty the rows in the source tables, and put the marks of the erased people in force."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

from audit.erasure.erase.delete import erase_table
from audit.erasure.find.known_values import without_links
from audit.erasure.guard import marks_of
from audit.erasure.register.records import StepName

if TYPE_CHECKING:
    from audit.erasure.model import PersonalTable
    from audit.erasure.run.context import RunContext

__all__ = ["DeleteRows"]


class DeleteRows:
    def __init__(self, context: RunContext) -> None:
        self._context = context

    def is_done(self) -> bool:
        steps = self._context.steps
        return all(steps.has(one.table, StepName.DELETE) for one in self._context.tables_to_erase())

    def run(self) -> dict[str, int]:
        """Return the number of rows by table. Linked tables come first: the rows that lead to theirs must still exist."""
        context, rows = self._context, {}
        for one in reversed(context.tables_to_erase()):
            facts = context.steps.read(one.table, StepName.DELETE)
            if facts is None:
                context.progress(f"erasing in {one.table}")
                facts = self._erase(one)
                context.steps.record(one.table, StepName.DELETE, facts)
            rows[one.table] = int(facts["rows"])
        context.release()
        self._put_marks_in_force()
        context.reach("deleted")
        return rows

    def _erase(self, one: PersonalTable) -> dict[str, Any]:
        """Make one commit for each person whom the rows name, first for the people for whom whole rows are deleted."""
        context = self._context
        done = {
            person: erase_table(
                context.spark,
                one,
                context.resolution.caught(one.table, person),
                run=context.run,
                requests=context.ids,
                since=context.resolution.versions[one.table],
                marker=context.keys,
                person=person,
            )
            for person in sorted(range(len(one.people)), key=lambda at: one.people[at].on_erase != "delete")
        }
        versions = [list(done[person].versions) for person in range(len(one.people))]
        facts = {"rows": sum(each.rows for each in done.values()), "versions": sorted(itertools.chain(*versions))}
        return {**facts, "by_person": versions} if one.others else facts

    def _put_marks_in_force(self) -> None:
        """From now on pipelines recognise the erased people."""
        context = self._context
        until = (context.now + dt.timedelta(days=context.watch_days)).date()
        learned: dict[str, list[tuple[str, str]]] = {}
        for id, name, value in without_links(context.register.learned(context.ids, context.keys)):
            learned.setdefault(id, []).append((name, value))
        marks = set()
        for request in context.requests:
            values = [*request.identifiers.items(), *learned.get(request.id, ())]
            marks |= {(request.id, *mark) for mark in marks_of(context.keys, context.graph, request.subject, values)}
        context.held.suppress(context.ids, marks, until)

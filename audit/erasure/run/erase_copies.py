"""Fifth step: wait until every sink has passed the erasing commits, then remove what its target had before."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from audit.erasure.errors import SinkBehind
from audit.erasure.register.records import StepName, pipeline_place
from audit.erasure.run.tasks import make_task

if TYPE_CHECKING:
    from audit.erasure.run.context import RunContext
    from audit.erasure.run.destroy_keys import DestroyKeys

__all__ = ["EraseCopies"]

_LAST_TRY = "in the last of several attempts: does not include what earlier attempts removed"


class EraseCopies:
    def __init__(self, context: RunContext, keys: DestroyKeys) -> None:
        self._context, self._keys = context, keys

    def is_done(self) -> bool:
        return all(
            self._context.steps.has(pipeline_place(copy.pipeline), StepName.ERASE_COPY)
            for _, copy in self._context.copies_to_erase()
            if copy.erasure is not None and copy.version() is not None
        )

    def run(self) -> dict[str, dict[str, int]]:
        """Return counts by pipeline. Raises SinkBehind, which names every sink that has not passed the commits."""
        self._check_passed()
        self._keys.run_again()
        context, erased = self._context, {}
        for one, copy in context.copies_to_erase():
            place = pipeline_place(copy.pipeline)
            facts = context.steps.read(place, StepName.ERASE_COPY)
            if facts is None and (erasure := copy.erasure) is not None and copy.version() is not None:
                context.progress(f"erasing what {copy.pipeline} has written")
                is_repeated = context.steps.has(place, StepName.ERASING_COPY)
                if not is_repeated:
                    context.steps.record(place, StepName.ERASING_COPY, {})
                counts: Counter[str] = Counter()
                for person in range(len(one.people)):
                    counts.update(erasure.erase(make_task(context, self._keys, one, copy.key, person)))
                facts = {"counts": dict(counts)} | ({"counted": _LAST_TRY} if is_repeated else {})
                context.steps.record(place, StepName.ERASE_COPY, facts)
            if facts is not None:
                erased[copy.pipeline] = dict(facts["counts"])
        context.reach("propagated")
        return erased

    def _check_passed(self) -> None:
        """Where nothing was erased in a table, its sinks must have reached the version at which the rows were resolved: no
        later step would destroy the keys of rows that a trail reads after the second destruction."""
        context, behind = self._context, []
        for one, copy in context.copies_to_erase():
            versions, position = context.erasing_versions(one.table), copy.version()
            wanted = versions[-1] if versions else context.resolved_versions()[one.table]
            # An empty target starts with the present state of the table
            if position is not None and position < wanted:
                done = "had rows erased" if versions else "was searched"
                behind.append(f"{copy.pipeline} is at {position} and {one.table} {done} at {wanted}")
        if behind:
            raise SinkBehind(
                "the deletes have not reached every sink: " + "; ".join(behind),
                hint="run the pipelines (`deltarelay run`), then run `deltarelay erase run` again",
                behind=behind,
            )

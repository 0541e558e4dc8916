"""Second step: refuse what would be refused later, then record that the run begins to delete.

From here on the run must be continued: its requests cannot be planned again in another run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.erasure.find.plan import unencrypted_problems
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.register.records import WHOLE_RUN, StepName
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from audit.erasure.run.context import RunContext

__all__ = ["StartDeletion", "check_encrypted"]


class StartDeletion:
    def __init__(self, context: RunContext) -> None:
        self._context = context

    def is_done(self) -> bool:
        return any(one.step == StepName.DELETING for one in self._context.steps.all())

    def run(self) -> None:
        """The checks are repeated in a continued run, for what is not deleted yet."""
        context = self._context
        if context.registry is None:
            self._check_nothing_encrypted()
        elif not context.steps.has(WHOLE_RUN, StepName.KEYS_DESTROYED):
            check_encrypted(context)
        remaining = [one for one in context.tables_to_erase() if not context.steps.has(one.table, StepName.DELETE)]
        if problems := [problem for one in remaining for problem in inspect_table(context.spark, one)]:
            raise ConfigError(
                "; ".join(problems), hint="`deltarelay erase plan` names all of them beforehand", problems=problems
            )
        if remaining or context.registry is not None:
            context.held.begin_deleting(context.ids)

    def _check_nothing_encrypted(self) -> None:
        """What was encrypted while keys were configured stays readable with them."""
        if encrypted := [
            copy.pipeline
            for _, copy in self._context.copies_to_erase()
            if (trail := copy.trail_erasure) is not None and trail.has_encrypted_columns()
        ]:
            raise ConfigError(
                f"encrypted values in the trail of {', '.join(encrypted)} are readable with keys that `erasure.keys` does "
                "not name",
                hint="restore `erasure.keys` in the configuration, then run `deltarelay erase run` again",
                pipelines=encrypted,
            )


def check_encrypted(context: RunContext) -> None:
    """Raises ConfigError where trails have rows from before their classes were configured. Destroying keys does not reach
    these rows; and erasing them would also remove values of a class under a hold."""
    if problems := unencrypted_problems(copy for _, copy in context.copies_to_erase()):
        raise ConfigError("; ".join(problems), hint="after that, run `deltarelay erase run` again", problems=problems)

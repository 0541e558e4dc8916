"""The erasure task that a run passes to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.erasure.erase.delete import erased_keys
from audit.erasure.model import Link
from audit.erasure.sink_contract import ErasureTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.erasure.model import PersonalTable
    from audit.erasure.run.context import RunContext
    from audit.erasure.run.destroy_keys import DestroyKeys

__all__ = ["make_task"]


def make_task(
    context: RunContext, keys: DestroyKeys, one: PersonalTable, key: tuple[str, ...], at: int = 0
) -> ErasureTask:
    """``at``: which of the people whom the table's rows name."""
    versions, person = context.erasing_versions(one.table, at), one.people[at]
    every = context.graph.table(one.table) or one  # also people without a request: what is said about them stays
    is_own = person.path == every.path and not isinstance(person.path, Link)
    tokens = keys.known_tokens() if context.registry is not None else frozenset()
    others = [other for other in every.people if other.column != person.column]

    def deleted_keys() -> DataFrame:
        return erased_keys(context.spark, one.table, versions, key)

    return ErasureTask(
        run=context.run,
        requests=context.ids,
        table=one.table,
        versions=versions,
        key=key,
        on_erase=person.on_erase,
        personal=person.personal,
        keys=deleted_keys,
        catch=lambda frame: context.resolution.catch(one.table, frame, at),
        search_terms=context.search_terms().at(context.graph.holding(one.table)),
        immediately=context.immediate,
        link=None if is_own else person.column,
        others=tuple(other.column for other in others),
        encrypted=context.graph.encrypted_columns_of(person, others, tokens),
        destroyed_keys=frozenset()
        if context.registry is None
        else frozenset(context.registry.list_destroyed_keys(tokens)),
        registered_keys=frozenset() if context.registry is None else context.registry.list_key_ids(tokens),
    )

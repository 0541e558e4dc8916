"""The erasure register: the durable state of erasures, in PostgreSQL.

It records who is to be erased, how far each request is, what it waits for, and what is certified. While a run is active,
only its ``LeasedRegister`` moves requests to other states; one run is active at a time. The database holds identifiers as
ciphertext and as keyed marks only (``RegisterKeys``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from audit.database import Database, jsonb
from audit.erasure.register.identifiers import IdentifierTable, MarkTable
from audit.erasure.register.records import Access, Carrier
from audit.erasure.register.requests import RequestTable
from audit.erasure.register.runs import RunTable
from audit.erasure.register.schema import MIGRATIONS
from audit.migrations import Migrations

__all__ = ["Register"]


class Register(RequestTable, IdentifierTable, RunTable, MarkTable):
    """Each base class is responsible for one part of the tables. This class adds the pipelines that copy, or once copied, a
    table with personal data, and the access reports that were given out."""

    def __init__(self, dsn: str, *, schema: str = "erasure") -> None:
        migrations = Migrations("the erasure register", schema, MIGRATIONS, recreates=False)
        self._database = Database(dsn, migrations, made_by="deltarelay erase init")

    def __repr__(self) -> str:
        return f"Register({self._database.name!r})"

    def record_carriers(self, carriers: Iterable[Carrier]) -> None:
        """Record that these pipelines copy these tables. A repeated call changes nothing, and nothing removes them."""
        rows = sorted(set(carriers))
        with self._database.transaction() as work:
            work.execute(
                "insert into {carrier} (pipeline, table_name, target)"
                " select * from unnest(%s::text[], %s::text[], %s::text[]) on conflict do nothing",
                [[one.pipeline for one in rows], [one.table for one in rows], [one.target for one in rows]],
            )

    def carriers(self, tables: Iterable[str]) -> tuple[Carrier, ...]:
        """Return every pipeline that ever copied one of the tables. The target is empty for a pipeline that only a plan of
        an earlier version names."""
        with self._database.transaction() as work:
            rows = work.rows(_CARRIERS, [asked := list(tables), asked])
        return tuple(Carrier(*row) for row in rows)

    def record_access(self, request: str, subject: str, reader: str, digest: str, counts: Mapping[str, int]) -> None:
        """Record that a report of the data held about a person was given out."""
        with self._database.transaction() as work:
            work.execute(
                "insert into {access} (request, subject, reader, digest, counts) values (%s, %s, %s, %s, %s)",
                [request, subject, reader, digest, jsonb(counts)],
            )

    def accesses(self) -> tuple[Access, ...]:
        """Return all of them, the first one first."""
        with self._database.transaction() as work:
            rows = work.rows("select request, subject, at, role, reader, digest, counts from {access} order by number")
        return tuple(Access(*row) for row in rows)


_CARRIERS = """\
select pipeline, table_name, target from {carrier} where table_name = any(%s)
union
select sink ->> 'pipeline', sink ->> 'table', '' from {run}, jsonb_array_elements(plan -> 'sinks') as sink
 where sink ->> 'table' = any(%s)
   and not exists (select from {carrier} where (pipeline, table_name) = (sink ->> 'pipeline', sink ->> 'table'))
order by 1, 2, 3"""

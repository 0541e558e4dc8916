"""The erasure register: the durable state of erasures, in PostgreSQL.

It records who is to be erased, how far each request is, what it waits for, and what is certified. While a run is active,
only its ``LeasedRegister`` moves requests to other states; one run is active at a time. The database holds identifiers as
ciphertext and as keyed marks only (``RegisterKeys``).
"""

from __future__ import annotations

from audit.database import Database
from audit.erasure.register.carriers import AccessTable, CarrierTable
from audit.erasure.register.identifiers import IdentifierTable
from audit.erasure.register.marks import MarkTable
from audit.erasure.register.requests import RequestTable
from audit.erasure.register.runs import RunTable
from audit.erasure.register.schema import MIGRATIONS
from audit.migrations import Migrations

__all__ = ["Register"]


class Register(RequestTable, IdentifierTable, RunTable, MarkTable, CarrierTable, AccessTable):
    """Each base class is responsible for one part of the register's tables."""

    def __init__(self, dsn: str, *, schema: str = "erasure") -> None:
        migrations = Migrations("the erasure register", schema, MIGRATIONS, recreates=False)
        self._database = Database(dsn, migrations, made_by="deltarelay erase init")

    def __repr__(self) -> str:
        return f"Register({self._database.name!r})"

"""What the steps of an erasure run share: the requests, the tables and copies that they reach, and the register."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from audit.erasure.find.resolve import Resolution
from audit.erasure.find.retained_rows import rows_from_copies
from audit.erasure.model import STATES
from audit.erasure.register.records import WHOLE_RUN, StepName, request_place
from audit.erasure.register.steps import StepRecords
from audit.erasure.run.full_scan import make_search_terms
from audit.erasure.scan.files import Files, LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from audit.encryption.key_registry import Registry
    from audit.erasure.find.copies import Copy
    from audit.erasure.model import PersonalTable, Request, State
    from audit.erasure.register.leased_register import LeasedRegister
    from audit.erasure.register.records import Carrier
    from audit.erasure.register.secrets import Keys
    from audit.erasure.register.store import Register
    from audit.erasure.scan.search_terms import SearchTerms
    from audit.erasure.table_graph import Graph
    from audit.signing.signer import Signer

__all__ = ["RunContext", "describe_carrier"]


def describe_carrier(carrier: Carrier) -> str:
    return f"pipeline {carrier.pipeline}" + (f", to {carrier.target}" if carrier.target else "")


@dataclass(slots=True)
class RunContext:
    spark: SparkSession
    graph: Graph
    copies: Sequence[Copy]
    register: Register
    held: LeasedRegister
    """Writes to the register under the run's lease."""
    keys: Keys
    signer: Signer
    run: str
    requests: Sequence[Request]
    """All requests of the run's plan."""
    approve_above: int
    """A request that matches more rows of a table than this needs an approver."""
    out_of_reach: tuple[str, ...]
    """Copies of the data that the certificate names as not reached."""
    now: dt.datetime
    watch_days: int = 365
    """How long pipelines watch for erased people to come back."""
    immediate: bool = False
    """Purge without waiting for retention: see ``immediately`` of ``purge_table``."""
    adopt: bool = False
    """Accept steps without a MAC, which an earlier release has recorded."""
    files: Callable[[str], Files] = LocalFiles
    """Lists the files below the address of a table."""
    registry: Registry | None = None
    """The registry of the keys under which trails encrypt; None where nothing is encrypted."""
    progress: Callable[[str], None] = lambda _: None
    steps: StepRecords = field(init=False)
    _resolution: Resolution | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.steps = StepRecords(self.run, self.register, self.held, self.keys)

    # ── what the run is about ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(request.id for request in self.requests)

    def tables(self) -> list[PersonalTable]:
        """Return the tables of the requests' subjects, a linked table after the one that it leads to."""
        return list(self.graph.tables_of(*(request.subject for request in self.requests)))

    def tables_to_erase(self) -> list[PersonalTable]:
        """Return ``tables`` without those under a hold."""
        return [one for one in self.tables() if not self.graph.held(one.table, self.now.date())]

    def copies_to_erase(self) -> list[tuple[PersonalTable, Copy]]:
        """Return the copies of ``tables_to_erase``. Copies of linked tables come first, as with the deletes: rows of a copy
        may also be needed to find rows of other copies."""
        tables = reversed(self.tables_to_erase())
        return [(one, copy) for one in tables for copy in self.copies if copy.table == one.table]

    def missing_carriers(self) -> list[Carrier]:
        """Return pipelines that have copied a table of the requests' subjects, and that are no longer configured, or with
        another target: what they have written was not erased."""
        carriers = self.register.carriers(one.table for one in self.tables())
        configured = {copy.carrier for copy in self.copies}
        configured |= {replace(copy.carrier, target="") for copy in self.copies}
        return [one for one in carriers if one not in configured]

    # ── what the run knows ───────────────────────────────────────────────────────────────────────────────────────────

    def resolve(self, versions: Mapping[str, int] | None) -> Resolution:
        """Find the rows, at the latest versions or at the given ones."""
        known = self.register.learned(self.ids, self.keys)
        return Resolution.of(
            self.spark,
            self.tables(),
            self.graph.subjects,
            self.requests,
            known,
            versions=versions,
            retained=rows_from_copies(self.copies),
        )

    def keep(self, resolution: Resolution) -> None:
        """Let the other steps use what the resolve step finds and records: a continued run finds the same."""
        self._resolution = resolution

    def release(self) -> None:
        """Remove the rows that were found from Spark's memory and disk."""
        if self._resolution is not None:
            self._resolution.close()

    @property
    def resolution(self) -> Resolution:
        """The rows as the resolve step has found them."""
        if self._resolution is None:
            self._resolution = self.resolve(self.resolved_versions())
        return self._resolution

    def resolved_versions(self) -> Mapping[str, int]:
        """Return the version of each table at which the rows were resolved."""
        facts = self.steps.read(WHOLE_RUN, StepName.RESOLVE)
        assert facts is not None
        versions: Mapping[str, int] = facts["versions"]
        return versions

    def erasing_versions(self, table: str, person: int | None = None) -> tuple[int, ...]:
        """Return the erasing commits of a table, for all people whom its rows name or for one of them."""
        facts = self.steps.read(table, StepName.DELETE)
        if facts is None:
            return ()
        return tuple(facts["versions"] if person is None else facts.get("by_person", [facts["versions"]])[person])

    def search_terms(self) -> SearchTerms:
        return make_search_terms(self.requests, self.register.learned(self.ids, self.keys))

    # ── how far the run is ───────────────────────────────────────────────────────────────────────────────────────────

    def scanned_requests(self) -> tuple[str, ...]:
        """Return the requests of which the scan found nothing, or only accepted findings. In a run of an earlier release
        these are all requests or none."""
        places = {one.table for one in self.steps.all() if one.step == StepName.SCAN}
        return tuple(id for id in self.ids if WHOLE_RUN in places or request_place(id) in places)

    def reach(self, state: State) -> None:
        """Move the requests that have not come so far yet to this state."""
        scanned = self.scanned_requests()
        ids = scanned if state == "verified" else [id for id in self.ids if id not in scanned]
        behind = [
            one.id
            for one in (self.register.requests(ids) if ids else ())
            if (one.state, state) != ("partial", "verified")  # certified in this run
            and (one.state not in STATES or STATES.index(one.state) < STATES.index(state))
        ]
        if behind:
            self.held.move(behind, state)

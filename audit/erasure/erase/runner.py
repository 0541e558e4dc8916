"""The walk of an erasure, every step of which can be cut off and taken up again::

    resolve ─▶ shred ─▶ delete ─▶ propagate ─▶ purge ─▶ scan ─▶ certify
    whose rows  what is   MERGE     every sink    files,   what    signed
    in which    sealed    against   has passed    dead     is      document
    tables      is gone   keys      and forgets   tuples   left

What a step came to stands in the register before the next begins; a step that stands there is not done again. A step that
has to wait for something says for what, and until when: the next `erase run` goes on from there.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from audit.erasure.erase.delete import erase_table, erased_keys
from audit.erasure.erase.purge import purge_table
from audit.erasure.errors import SinkBehind
from audit.erasure.evidence.certificate import evidence, make_certificate, refuse_identifiers, sign
from audit.erasure.find.plan import not_sealed
from audit.erasure.find.resolve import TOKEN, Resolution, identifiers_in
from audit.erasure.find.retained_rows import kept_by
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.guard import marks_of
from audit.erasure.model import STATES, Link
from audit.erasure.register.run_lease import DELETING, request_place
from audit.erasure.register.steps import UNSIGNED, authentic, has_mac, with_mac
from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.files import Files, LocalFiles
from audit.erasure.scan.findings import FOLLOWS
from audit.erasure.scan.results import Finding, ScanResult, Unseen, unseen_location
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.erasure.sink_contract import ErasureTask, PurgeResult
from audit.identifiers import stored_forms
from cdf.errors import ConfigError, VerificationError
from cdf.result import Result, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.encryption.key_registry import Registry
    from audit.erasure.find.copies import Copy
    from audit.erasure.model import Hold, PersonalTable, Request, State
    from audit.erasure.register.secrets import Keys
    from audit.erasure.register.store import Carrier, Held, Register, Step
    from audit.erasure.table_graph import Graph
    from audit.signing.signer import Signer

__all__ = ["ErasureReport", "ErasureRun", "accepted", "carried_by", "search_terms_of", "scan_everything"]

log = logging.getLogger("deltarelay.erasure")

_NOT_THERE = (
    "it has carried a touched table and is configured no more: what its target holds was neither erased nor looked at"
)
_HOLDS_NOTHING = (
    "its target has no position of it: it has never run, or the configuration leads to another target than it did"
)
_LAST_TRY = "by the last of several tries: what one before it had removed is not among them"
_INTERRUPTED = "without what an interrupted try had removed"
_REQUEST_FILE = (
    "the file or message in which the request was received, with the person's identifiers in clear, and its copies: to be "
    "deleted by those who keep them"
)
_SHREDS = ("shred", "shred again")
ALL = ""
"""In the register the place of a step that is not about one table or sink."""


@dataclass(frozen=True, slots=True)
class ErasureReport(Result):
    """What one call of ``ErasureRun.go`` came to."""

    run: str
    requests: tuple[str, ...]
    state: str
    deleted: Mapping[str, int] = field(default_factory=dict)
    """Rows by table."""
    forgotten: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By pipeline: what was removed there besides the deletes that came through the feed."""
    waits_until: dt.datetime | None = None
    waits_for: tuple[str, ...] = ()
    finds: tuple[Finding, ...] = ()
    """What the scan found that no date clears."""
    certificates: tuple[str, ...] = ()


def carried_by(carrier: Carrier) -> str:
    return f"pipeline {carrier.pipeline}" + (f", to {carrier.target}" if carrier.target else "")


def search_terms_of(requests: Sequence[Request], known: Sequence[tuple[str, str, str]]) -> SearchTerms:
    """``known``: (request, identifier, value) of what was learned besides."""
    subject = {request.id: request.subject for request in requests}
    given = [(request.id, name, value) for request in requests for name, value in request.identifiers.items()]
    return SearchTerms(
        SearchTerm(id, value, name, subject[id]) for id, name, value in sorted({*given, *identifiers_in(known)})
    )


def scan_everything(
    graph: Graph,
    tables: Sequence[str],
    copies: Sequence[Copy],
    terms: SearchTerms,
    *,
    files: Callable[[str], Files],
    now: dt.datetime,
    progress: Callable[[str], None],
) -> ScanResult:
    """Look through the files of the tables and everything that the sinks hold."""
    found = ScanResult()
    for table in tables:
        progress(f"scanning {table}")
        try:
            found += scan_table(files(table), terms.at(graph.holding(table)), now=now).at(table)
        except OSError as error:
            found += ScanResult(unseen=(unseen_location(table, error),))
    for copy in copies:
        if (erasure := copy.erasure) is not None:
            progress(f"scanning what {copy.pipeline} has written")
            found += erasure.scan(terms.at(graph.holding(copy.table)))
        else:
            found += ScanResult(unseen=(Unseen(copy.pipeline, "this kind of sink cannot be looked through"),))
    return found


@dataclass(slots=True)
class ErasureRun:
    """One run over the requests of one plan, by who holds the register."""

    spark: SparkSession
    graph: Graph
    copies: Sequence[Copy]
    register: Register
    held: Held
    keys: Keys
    signer: Signer
    run: str
    requests: Sequence[Request]
    approve_above: int
    out_of_reach: tuple[str, ...]
    now: dt.datetime
    watch_days: int = 365
    immediate: bool = False
    """Purge what only time would purge: see ``immediately`` of ``purge_table``."""
    adopt: bool = False
    """Take the steps without a MAC, which an earlier release has recorded, as they are."""
    files: Callable[[str], Files] = LocalFiles
    """What is below the address of a table."""
    registry: Registry | None = None
    """Of the keys that trails have sealed by; None where nothing is sealed."""
    progress: Callable[[str], None] = lambda _: None
    _resolution: Resolution | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(request.id for request in self.requests)

    def go(self) -> ErasureReport:
        """Go on from where the register stands, as far as today allows. Trails are told of every state that was reached."""
        self._check_requests()
        if self.adopt:
            self._adopt()
        self.register.carry(copy.carrier for copy in self.copies)
        try:
            report = self._over() or self._walk()
        except SinkBehind:
            self.note()
            raise
        self.note()
        if report.certificates and self._over() is not None:
            self.held.finish()
        return report

    def _check_requests(self) -> None:
        """All requests of the run are in it, and no other: one that was left out could be finished by no later command."""
        if other := sorted(set(self.ids) ^ set(self.register.run(self.run).requests)):
            raise ConfigError(
                f"these are not the requests of run {self.run}: they differ by {', '.join(other[:5])}",
                hint=f"`deltarelay erase run {self.run}` takes them from the register",
                requests=other,
            )

    def _over(self) -> ErasureReport | None:
        """Where every request has its certificate: of a run that died after that."""
        states = {one.state for one in self.register.requests(self.ids)}
        if states <= {"certified", "partial"}:
            state = "partial" if "partial" in states else "certified"
            return ErasureReport(self.run, self.ids, state, certificates=self.ids)
        return None

    def _walk(self) -> ErasureReport:
        self.resolve()
        self.begin()
        self.shred()
        deleted = self.delete()
        forgotten = self.propagate()
        report = ErasureReport(self.run, self.ids, "propagated", deleted, forgotten)
        waits = self.purge()
        if waits:
            until = min(one.waits_until for one in waits if one.waits_until)
            reasons = tuple(f"{one.waits_for} until {one.waits_until:%Y-%m-%d %H:%M}Z" for one in waits)
            self.held.wait(self.ids, until, "; ".join(reasons))
            return replace(report, waits_until=until, waits_for=reasons)
        finds = self.scan()
        if self._scanned():
            if self.registry is not None:
                self._check_sealed()
            self.certify()
        if finds:  # holds up whose it is, and nobody else
            return self._left(replace(report, state="purged", certificates=self._scanned()), finds)
        over = self._over()
        assert over is not None
        return replace(report, state=over.state, certificates=over.certificates)

    def _left(self, report: ErasureReport, finds: Sequence[Finding]) -> ErasureReport:
        """What is still there: it goes on a day that is known, or somebody has to do something."""
        today = self.now.date()  # the purge that came before would have removed what has a day in the past
        if stays := tuple(one for one in finds if one.clears_on is None or one.clears_on < today):
            return replace(report, finds=stays)
        day = max(one.clears_on for one in finds if one.clears_on is not None)
        until = dt.datetime.combine(day, dt.time(), dt.UTC)
        reason = f"{len(finds)} places where something is found, the last of which clears by {day}"
        self.held.wait({one.request for one in finds}, until, reason)
        return replace(report, waits_until=until, waits_for=(reason,))

    def _reached(self, state: State) -> None:
        """Those that have not come so far yet."""
        scanned = self._scanned()
        ids = scanned if state == "verified" else [id for id in self.ids if id not in scanned]
        behind = [
            one.id
            for one in (self.register.requests(ids) if ids else ())
            if (one.state, state) != ("partial", "verified")  # certified in this run
            and (one.state not in STATES or STATES.index(one.state) < STATES.index(state))
        ]
        if behind:
            self.held.move(behind, state)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self, place: str, step: str) -> dict[str, Any] | None:
        facts = self.held.step(place, step)
        return None if facts is None else authentic(self.keys, self.run, place, step, facts)

    def _done(self, place: str, step: str, facts: Mapping[str, Any]) -> None:
        self.held.done(place, step, with_mac(self.keys, self.run, place, step, facts))

    def _put(self, place: str, step: str, facts: Mapping[str, Any]) -> None:
        self.held.put(place, step, with_mac(self.keys, self.run, place, step, facts))

    def _adopt(self) -> None:
        for one in self.register.steps(self.run):
            if one.step not in UNSIGNED and not has_mac(one.facts):
                self._put(one.table, one.step, one.facts)

    def _steps(self) -> tuple[Step, ...]:
        return tuple(
            one
            if one.step in UNSIGNED
            else replace(one, facts=authentic(self.keys, self.run, one.table, one.step, one.facts))
            for one in self.register.steps(self.run)
        )

    # ── resolve ──────────────────────────────────────────────────────────────────────────────────────────────────

    def tables(self) -> list[PersonalTable]:
        """Those of the requests' subjects, a linked one after the one that it leads to."""
        return list(self.graph.tables_of(*(request.subject for request in self.requests)))

    def free(self) -> list[PersonalTable]:
        """Without those that a hold keeps."""
        return [one for one in self.tables() if not self.graph.held(one.table, self.now.date())]

    def resolve(self) -> None:
        """Which rows, at which versions: kept, so that whoever takes the run up catches the same."""
        facts = self._step(ALL, "resolve")
        if facts is None:
            if any(one.step in (DELETING, "delete") for one in self._steps()):
                raise VerificationError(
                    f"run {self.run} has begun to erase, and the register has lost which rows it had found",
                    hint="the register was altered: restore it from its backup",
                )
            self.progress("looking for the rows")
            resolution = self._resolved(None)
            self._check_approved(resolution)
            self.register.learn(resolution.learned(), self.keys)
            rows: dict[str, dict[str, int]] = {}
            for (table, request), found in resolution.counts().items():
                rows.setdefault(table, {})[request] = found.rows
            facts = {"versions": dict(resolution.versions), "rows": rows, "people": self._people()}
            self._done(ALL, "resolve", facts)
        elif changed := sorted({table for table, _ in facts["people"].items() ^ self._people().items()}):
            raise ConfigError(
                f"`erasure.tables` is not what it was when the run began: {', '.join(changed)}",
                hint="put it back until the run is over, then plan again for what has changed",
            )
        self._reached("resolved")
        self._reached("approved")

    def _people(self) -> dict[str, str]:
        """By table the columns that tell whom its rows name."""
        return {one.table: ", ".join(person.column for person in one.people) for one in self.tables()}

    def _resolved(self, versions: Mapping[str, int] | None) -> Resolution:
        known = self.register.known(self.ids, self.keys)
        return Resolution.of(
            self.spark,
            self.tables(),
            self.graph.subjects,
            self.requests,
            known,
            versions=versions,
            kept=kept_by(self.copies),
        )

    @property
    def resolution(self) -> Resolution:
        if self._resolution is None:
            self._resolution = self._resolved(self._resolved_at())
        return self._resolution

    def _resolved_at(self) -> Mapping[str, int]:
        """The version of each table at which the rows were looked for."""
        facts = self._step(ALL, "resolve")
        assert facts is not None
        versions: Mapping[str, int] = facts["versions"]
        return versions

    def _check_approved(self, resolution: Resolution) -> None:
        approved = {request.id for request in self.requests if request.approver is not None}
        if many := {id: why for id, why in resolution.fan_out(self.approve_above).items() if id not in approved}:
            told = [f"{id} ({why})" for id, why in many.items()]
            raise ConfigError(
                f"no approver has been named for {', '.join(told[:5])}",
                hint="`deltarelay erase approve REQUEST --by NAME`, once somebody has looked at the plan",
                requests=list(many),
            )

    # ── shred ────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Before the first key goes, and the first row: whatever would be refused later is refused now, because from here
        on the run is gone on with, and not planned again."""
        if self.registry is None:
            self._check_keyless()
        elif self._step(ALL, _SHREDS[0]) is None:
            self._check_sealed()
        left = [one for one in self.free() if self._step(one.table, "delete") is None]
        if problems := [problem for one in left for problem in inspect_table(self.spark, one)]:
            raise ConfigError(
                "; ".join(problems), hint="`deltarelay erase plan` names all of them beforehand", problems=problems
            )
        if left or self.registry is not None:
            self.held.begin_deleting(self.ids)

    def shred(self) -> None:
        """The keys go before anything else: what is sealed is unreadable from then on, in every copy at once."""
        if self.registry is not None:
            self._shred(self.registry, _SHREDS[0])
            self._reached("shredded")

    def _shred(self, registry: Registry, step: str) -> None:
        if self._step(ALL, step) is not None:
            return
        self.progress("destroying keys")
        if self._step(ALL, f"{step} of") is None:
            # Once a person's last key is gone nothing leads to the token any more
            found = self._tokens(registry)
            self.register.learn(found, self.keys)
            kept = _told_holds(self.graph.held_classes(self.now.date()))
            counts = Counter(id for id, _, _ in found)
            self._done(ALL, f"{step} of", {"kept": kept, "roots": list(registry.roots()), "tokens": dict(counts)})
        tokens = self._known_tokens()
        registry.shred(tokens, keeping=self._kept_classes(), run=self.run)  # also what is held since it was asked
        self._done(ALL, step, {"keys": len(registry.gone(tokens)), "subjects": len(tokens)})

    def _shred_what_came_back(self, registry: Registry) -> None:
        """Keys that are there although they were destroyed: from a backup, or by a hand in the database. Not of tokens that
        a hold keeps: rows that came later have got keys by these."""
        kept = self._kept_classes()
        for id in self.ids:
            tokens = self._known_tokens(id)
            living = registry.classes(tokens)
            if living and living.isdisjoint(kept):
                log.error("destroyed keys were there again", extra={"run": self.run, "classes": sorted(living)})
                registry.shred(tokens, run=self.run)

    def _kept_classes(self) -> Mapping[str, Mapping[str, str]]:
        """Those under a hold on the day on which keys were destroyed last, whatever the calendar says by now; and those that
        are under one since."""
        if self.registry is None:
            return {}
        return {**_told_holds(self.graph.held_classes(self.now.date())), **self._last_shred()["kept"]}

    def _last_shred(self) -> Mapping[str, Any]:
        found = [self._step(ALL, f"{step} of") for step in reversed(_SHREDS)]
        return next((facts for facts in found if facts is not None), {"kept": {}, "roots": []})

    def _check_sealed(self) -> None:
        """Keys say nothing of rows that they have not sealed, and a class that is held would go with them."""
        if problems := not_sealed(copy for _, copy in self._copies()):
            raise ConfigError("; ".join(problems), hint="then `deltarelay erase run` again", problems=problems)

    def _check_keyless(self) -> None:
        """What was sealed while keys were configured stays readable by them."""
        if sealed := [
            copy.pipeline
            for _, copy in self._copies()
            if (trail := copy.trail_erasure) is not None and trail.has_encrypted_columns()
        ]:
            raise ConfigError(
                f"what is sealed in the trail of {', '.join(sealed)} is readable by keys that `erasure.keys` does not name",
                hint="put `erasure.keys` back, then `deltarelay erase run` again",
                pipelines=sealed,
            )

    def _tokens(self, registry: Registry) -> set[tuple[str, str, str]]:
        """By what the registry knows the subjects of the requests, whatever identifier leads there: for the register."""
        subjects = {request.id: self.graph.subjects[request.subject] for request in self.requests}
        given = [(request.id, name, value) for request in self.requests for name, value in request.identifiers.items()]
        known = {*given, *identifiers_in(self.register.known(self.ids, self.keys))}
        found: set[tuple[str, str, str]] = set()
        for name in {subject.name for subject in subjects.values()}:
            theirs = [
                (id, (identifier, form))
                for id, identifier, value in sorted(known)
                if subjects[id].name == name
                for form in stored_forms(value, subjects[id].identifiers[identifier])
            ]
            tokens = registry.tokens(name, [[one] for _, one in theirs])
            of_requests = zip(theirs, tokens, strict=True)
            found |= {(id, TOKEN, token.hex()) for (id, _), token in of_requests if token is not None}
        return found

    def _known_tokens(self, *ids: str) -> frozenset[bytes]:
        """Of these requests, or of all: by what the registry of keys knew them. The register keeps it sealed, and forgets it
        with the identifiers. Raises VerificationError where it has fewer than the run has told it."""
        known = self.register.known(ids or self.ids, self.keys)
        tokens = {(id, value) for id, name, value in known if name == TOKEN}
        there = Counter(id for id, _ in tokens)
        for step in _SHREDS:
            recorded = (self._step(ALL, f"{step} of") or {}).get("tokens", {})
            if lost := [id for id in ids or self.ids if there[id] < recorded.get(id, 0)]:
                raise VerificationError(
                    f"the register has lost by what the key registry knows the person of {', '.join(lost)}",
                    hint="the register was altered: restore it from its backup",
                    requests=lost,
                )
        return frozenset(bytes.fromhex(value) for _, value in tokens)

    # ── delete ───────────────────────────────────────────────────────────────────────────────────────────────────

    def delete(self) -> dict[str, int]:
        """In the source tables; → rows by table. Linked tables first: what leads to their rows must still be there."""
        rows = {}
        for one in reversed(self.free()):
            facts = self._step(one.table, "delete")
            if facts is None:
                self.progress(f"erasing in {one.table}")
                facts = self._erased(one)
                self._done(one.table, "delete", facts)
            rows[one.table] = int(facts["rows"])
        self._watch_for()
        self._reached("deleted")
        return rows

    def _erased(self, one: PersonalTable) -> dict[str, Any]:
        """One commit for each person whom the rows name; those first by which they go as a whole."""
        done = {
            person: erase_table(
                self.spark,
                one,
                self.resolution.caught(one.table, person),
                run=self.run,
                requests=self.ids,
                since=self.resolution.versions[one.table],
                marker=self.keys,
                person=person,
            )
            for person in sorted(range(len(one.people)), key=lambda at: one.people[at].on_erase != "delete")
        }
        versions = [list(done[person].versions) for person in range(len(one.people))]
        facts = {"rows": sum(each.rows for each in done.values()), "versions": sorted(itertools.chain(*versions))}
        return {**facts, "by_person": versions} if one.others else facts

    def _watch_for(self) -> None:
        """From now on pipelines know them again."""
        until = (self.now + dt.timedelta(days=self.watch_days)).date()
        known: dict[str, list[tuple[str, str]]] = {}
        for id, name, value in identifiers_in(self.register.known(self.ids, self.keys)):
            known.setdefault(id, []).append((name, value))
        marks = set()
        for request in self.requests:
            values = [*request.identifiers.items(), *known.get(request.id, ())]
            marks |= {(request.id, *mark) for mark in marks_of(self.keys, self.graph, request.subject, values)}
        self.held.suppress(self.ids, marks, until)

    def _versions(self, table: str, person: int | None = None) -> tuple[int, ...]:
        """The commits that erased, for all people in the table's rows or for one of them."""
        facts = self._step(table, "delete")
        if facts is None:
            return ()
        return tuple(facts["versions"] if person is None else facts.get("by_person", [facts["versions"]])[person])

    # ── propagate ────────────────────────────────────────────────────────────────────────────────────────────────

    def _copies(self) -> list[tuple[PersonalTable, Copy]]:
        """Those of linked tables first, like the deletes: a copy, too, has rows that lead to others."""
        return [(one, copy) for one in reversed(self.free()) for copy in self.copies if copy.table == one.table]

    def propagate(self) -> dict[str, dict[str, int]]:
        """Every sink has passed the erasing commits, and forgets what it had before; → counts by pipeline.

        Raises SinkBehind, which names every sink that has not. Also where nothing was erased in a table it has to have come
        to where the rows were looked for: what a trail takes in after the keys were destroyed a second time nobody destroys.
        """
        behind = []
        for one, copy in self._copies():
            versions, stands = self._versions(one.table), copy.version()
            wanted = versions[-1] if versions else self._resolved_at()[one.table]
            # A sink that holds nothing yet begins with what the table is now
            if stands is not None and stands < wanted:
                done = "was erased" if versions else "was looked through"
                behind.append(f"{copy.pipeline} stands at {stands} and {one.table} {done} at {wanted}")
        if behind:
            raise SinkBehind(
                "the deletes have not reached every sink: " + "; ".join(behind),
                hint="let the pipelines run (`deltarelay run`), then `deltarelay erase run` again",
                behind=behind,
            )
        if self.registry is not None:  # a trail that was behind has sealed by new keys what it had not read yet
            self._shred(self.registry, _SHREDS[1])
            self._shred_what_came_back(self.registry)
        forgotten = {}
        for one, copy in self._copies():
            place = f"pipeline {copy.pipeline}"
            facts = self._step(place, "forget")
            if facts is None and (erasure := copy.erasure) is not None and copy.version() is not None:
                self.progress(f"what {copy.pipeline} has written")
                again = self._step(place, "forgetting") is not None
                if not again:
                    self._done(place, "forgetting", {})
                counts: Counter[str] = Counter()
                for person in range(len(one.people)):
                    counts.update(erasure.erase(self.erasing(one, copy.key, person)))
                facts = {"counts": dict(counts)} | ({"counted": _LAST_TRY} if again else {})
                self._done(place, "forget", facts)
            if facts is not None:
                forgotten[copy.pipeline] = dict(facts["counts"])
        self._reached("propagated")
        return forgotten

    def erasing(self, one: PersonalTable, key: tuple[str, ...], at: int = 0) -> ErasureTask:
        """``at``: for whom of the people in the table's rows."""
        versions, person = self._versions(one.table, at), one.people[at]
        every = self.graph.table(one.table) or one  # also whom nobody asks about: what is said of them stays
        own = person.path == every.path and not isinstance(person.path, Link)
        tokens = self._known_tokens() if self.registry is not None else frozenset()
        others = [other for other in every.people if other.column != person.column]

        def keys() -> DataFrame:
            return erased_keys(self.spark, one.table, versions, key)

        return ErasureTask(
            run=self.run,
            requests=self.ids,
            table=one.table,
            versions=versions,
            key=key,
            on_erase=person.on_erase,
            personal=person.personal,
            keys=keys,
            catch=lambda frame: self.resolution.catch(one.table, frame, at),
            search_terms=self.terms().at(self.graph.holding(one.table)),
            immediately=self.immediate,
            link=None if own else person.column,
            others=tuple(other.column for other in others),
            encrypted=self.graph.sealed_for(person, others, tokens),
            destroyed_keys=frozenset() if self.registry is None else frozenset(self.registry.gone(tokens)),
            registered_keys=frozenset() if self.registry is None else self.registry.registered(tokens),
        )

    # ── purge ────────────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self) -> list[PurgeResult]:
        """Remove for good what storage still has; → what has to wait.

        Once more where everything was purged and the scan found something after all, such as the files of an aborted write.
        """
        scanned = self._scanned()
        once_more = {one.state for one in self.register.requests(self.ids) if one.id not in scanned} == {"purged"}
        waits = []
        for one, copy in self._copies():
            if (erasure := copy.erasure) is not None and copy.version() is not None:
                erasing = replace(self.erasing(one, copy.key), versions=self._versions(one.table))
                work = partial(erasure.purge, erasing, now=self.now)
                waits += self._purged(f"pipeline {copy.pipeline}", work, once_more)
        behind: list[SinkBehind] = []
        for one in self.free():
            work = partial(
                purge_table,
                self.spark,
                one.table,
                # Where no row is left the history still may have some
                versions=self._versions(one.table) or (self._resolved_at()[one.table],),
                positions=self._positions(one.table),
                now=self.now,
                immediately=self.immediate,
                personal=self._personal(one),
                once_more=once_more,
            )
            try:
                waits += self._purged(one.table, work, once_more)
            except SinkBehind as error:  # one run of the pipelines is to do for all tables
                behind.append(error)
        if behind:
            raise SinkBehind(
                "; ".join(one.message for one in behind),
                hint=behind[0].hint,
                behind=sorted({name for one in behind for name in one.fields["behind"]}),
            )
        if not waits:
            self._reached("purged")
        return waits

    def _personal(self, one: PersonalTable) -> set[str]:
        """Columns by which a folder could name somebody."""
        return {
            name
            for person in one.people
            for name in (*person.personal, *self.graph.subjects[person.subject].identifiers, person.column)
        }

    def _positions(self, table: str) -> dict[str, int]:
        """Of the sinks that have begun; one that holds nothing begins with what the table is then."""
        stand = {copy.pipeline: copy.version() for one, copy in self._copies() if one.table == table}
        return {pipeline: version for pipeline, version in stand.items() if version is not None}

    def _purged(self, place: str, work: Callable[[], PurgeResult], once_more: bool) -> list[PurgeResult]:
        done = self._step(place, "purge") is not None
        if done and not once_more:
            return []
        self.progress(f"purging {place}")
        before = self._step(place, "purging") or {"done": {}, "at_work": False, "interrupted": False}
        interrupted = before["interrupted"] or before["at_work"]
        self._put(place, "purging", {**before, "at_work": True, "interrupted": interrupted})
        try:
            came = work()
        except SinkBehind:  # before anything is removed
            self._put(place, "purging", {**before, "at_work": False, "interrupted": interrupted})
            raise
        counts = Counter(before["done"])
        counts.update(came.done)
        self._put(place, "purging", {"done": dict(counts), "at_work": False, "interrupted": interrupted})
        if came.waits_until is not None:
            return [replace(came, waits_for=f"{place}: {came.waits_for}")]
        if not done:
            self._done(place, "purge", {"done": dict(came.done), "out_of_reach": list(came.out_of_reach)})
        return []

    # ── scan ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def terms(self) -> SearchTerms:
        return search_terms_of(self.requests, self.register.known(self.ids, self.keys))

    def _scanned(self) -> tuple[str, ...]:
        """The requests of which the scan found nothing, or nothing that nobody has accepted. Of a run of an earlier version
        these are all or none."""
        places = {one.table for one in self._steps() if one.step == "scan"}
        return tuple(id for id in self.ids if ALL in places or request_place(id) in places)

    def scan(self) -> tuple[Finding, ...]:
        """→ what is left, of whomever. The scan of a person is recorded once nothing is found that nobody has accepted."""
        over = self._scanned()
        if len(over) == len(self.ids):
            self._reached("verified")
            return ()
        copies = [copy for _, copy in self._copies()]
        tables = [one.table for one in self.free()]
        scanned = scan_everything(
            self.graph, tables, copies, self.terms(), files=self.files, now=self.now, progress=self.progress
        )
        scanned += ScanResult(unseen=tuple(Unseen(carried_by(one), _NOT_THERE) for one in self.not_there()))
        scanned += ScanResult(
            unseen=tuple(Unseen(f"pipeline {one.pipeline}", _HOLDS_NOTHING) for one in copies if one.lacks_position())
        )
        facts = {"finds": 0, "checked": plain(scanned.checked), "unseen": plain(scanned.unseen)}
        left: list[Finding] = []
        for id in (id for id in self.ids if id not in over):
            theirs = [one for one in scanned.finds if one.request == id]
            decision = self.held.step(request_place(id), "accept")
            if theirs and (decision is None or not accepted(theirs, decision["finds"])):
                self.held.found(id, theirs)
                left += theirs
            else:
                told = {"accepted": {**decision, "finds": plain(theirs)}} if theirs and decision else {}
                self._done(request_place(id), "scan", facts | {"finds": len(theirs)} | told)
        if left:
            log.warning("something is left", extra={"run": self.run, "finds": len(left)})
        self._reached("verified")
        return tuple(left)

    def not_there(self) -> list[Carrier]:
        """Pipelines that have carried a table of the requests' subjects and are configured no more, or with another target:
        what they have written has not been told to forget anything."""
        carriers = self.register.carriers(one.table for one in self.tables())
        there = {copy.carrier for copy in self.copies} | {replace(copy.carrier, target="") for copy in self.copies}
        return [one for one in carriers if one not in there]

    # ── certify ──────────────────────────────────────────────────────────────────────────────────────────────────

    def certify(self) -> None:
        """One document for each request, signed. Once the run is finished nobody's identifiers are kept any more."""
        # Of a run that died after it: a certificate is issued once
        waiting = [one for one in self.register.requests(self.ids) if one.state == "verified"]
        if waiting:
            ids = {one.id for one in waiting}
            self.held.certify({one.id: self._certificate(one) for one in self.requests if one.id in ids})

    def note(self) -> None:
        """Every state that the requests have reached is an event of the trails that keep a touched table's history."""
        steps = self.register.reached(self.run)
        for one, copy in self._copies():
            if (trail := copy.trail_erasure) is not None and copy.version() is not None:
                trail.record_states(one.table, copy.key, self.run, steps)

    def _certificate(self, request: Request) -> dict[str, Any]:
        steps = self._steps()
        of_others = {request_place(id) for id in self.ids if id != request.id}
        steps = tuple(one for one in steps if one.table not in of_others)
        facts = {(one.table, one.step): one.facts for one in steps}
        scanned = facts.get((request_place(request.id), "scan")) or facts[ALL, "scan"]
        rows = facts[ALL, "resolve"]["rows"]
        # What the run did in tables and copies of other kinds of people is not theirs
        reached = {one.table for one in self.graph.tables_of(request.subject)}
        free = [one for one in self.free() if one.table in reached]
        copies = [(one, copy) for one, copy in self._copies() if one.table in reached]
        elsewhere = {one.table for one in self.free()} | {f"pipeline {copy.pipeline}" for _, copy in self._copies()}
        elsewhere -= {one.table for one in free} | {f"pipeline {copy.pipeline}" for _, copy in copies}
        shared = {"counted_for": f"all {len(self.ids)} requests of the run"} if len(self.ids) > 1 else {}
        # Also where it has no row of theirs now: its history and its copies were not looked through
        kept = [one for one in self.graph.tables_of(request.subject) if one.table not in {each.table for each in free}]
        holds = [
            {"table": one.table, "until": hold.until, "basis": hold.basis}
            for one in kept
            for hold in self.graph.held(one.table, self.now.date())
        ]
        living = frozenset() if self.registry is None else self.registry.classes(self._known_tokens(request.id))
        held = {name: hold for name, hold in self._kept_classes().items() if name in living}
        holds += [{"class": name, **hold} for name, hold in sorted(held.items())]
        alive = sorted(living - held.keys())
        if alive and not held:  # with a hold their token stays, and rows that came later have got keys by it
            raise VerificationError(
                f"keys of request {request.id} are in the registry again after they were destroyed: {', '.join(alive)}",
                hint="`deltarelay erase run` again destroys them; look who can write to the registry",
                classes=alive,
            )
        purges = [(place, told) for (place, step), told in facts.items() if step == "purge" and place not in elsewhere]
        document = make_certificate(
            request=request,
            run=self.run,
            outcome="partial" if kept or held or scanned["finds"] else "erased",
            tables=[
                {
                    "table": one.table,
                    "rows": rows.get(one.table, {}).get(request.id, 0),
                    "on_erase": one.what_happens,
                    "versions": list(self._versions(one.table)),
                }
                for one in free
            ],
            sinks=[
                {
                    "pipeline": copy.pipeline,
                    "table": one.table,
                    **told.get("counts", {}),
                    **({"counted": told["counted"]} if "counted" in told else {}),
                    **(shared if told.get("counts") else {}),
                }
                for one, copy in copies
                for told in [facts.get((f"pipeline {copy.pipeline}", "forget"), {})]
            ],
            purges=[
                {
                    "place": place,
                    **tries.get("done", told["done"]),
                    **({"counted": _INTERRUPTED} if tries.get("interrupted") else {}),
                    **shared,
                }
                for place, told in purges
                for tries in [facts.get((place, "purging"), {})]
            ],
            scan={"finds": scanned["finds"], "checked": scanned["checked"]},
            pending=[*(_held_back(hold) for hold in holds), *map(_alive, alive), *_accepted_back(scanned)],
            unverified=[*scanned["unseen"], *plain(self._gone_since(scanned["unseen"]))],
            out_of_reach=[
                _REQUEST_FILE,
                *self.out_of_reach,
                *self._undead(),
                *sorted({text for _, told in purges for text in told["out_of_reach"]}),
            ],
            holds=holds,
            evidence=[evidence(f"{one.step} {one.table}".strip(), one.at, one.facts) for one in steps],
            unfinished=self._unfinished(facts, request.id),
            issued_at=self.now,
        )
        refuse_identifiers(document, self.terms())
        return sign(document, self.signer)

    def _gone_since(self, unseen: Sequence[Mapping[str, Any]]) -> list[Unseen]:
        """Pipelines that were configured when the scan was recorded, and are no more."""
        named = {one["place"] for one in unseen}
        return [Unseen(place, _NOT_THERE) for one in self.not_there() if (place := carried_by(one)) not in named]

    def _undead(self) -> list[str]:
        """From where a key that was destroyed could come back."""
        if self.registry is None:
            return []
        days = self.registry.roots()
        told = []
        for root in self._last_shred()["roots"]:
            day = days.get(root)
            if day is None:
                until = "the day on which that is destroyed, once `deltarelay keys rotate` has gone to another"
            elif day > self.now.date():
                until = f"{day}, when that is destroyed"
            else:
                continue
            told.append(f"backups of the registry of keys from before, under the root key {root}: until {until}")
        return told

    def _unfinished(self, facts: Mapping[tuple[str, str], Any], request: str) -> list[str]:
        """What is not in the register was not done."""
        scan = (ALL if (ALL, "scan") in facts else request_place(request), "scan")
        wanted = [(ALL, "resolve"), scan, *((one.table, "delete") for one in self.free())]
        wanted += [(one.table, "purge") for one in self.free()]
        for _, copy in self._copies():
            if copy.erasure is not None and copy.version() is not None:
                wanted += [(f"pipeline {copy.pipeline}", step) for step in ("forget", "purge")]
        return [f"{step} {place}".strip() for place, step in wanted if (place, step) not in facts]


def _told_holds(holds: Mapping[str, Hold]) -> dict[str, Any]:
    return {name: {"until": hold.until, "basis": hold.basis} for name, hold in holds.items()}


def _held_back(hold: Mapping[str, Any]) -> dict[str, Any]:
    place = hold["table"] if "table" in hold else f"class {hold['class']}"
    return {"place": place, "reason": f"held: {hold['basis']}", "clears_on": None}


def _alive(name: str) -> dict[str, Any]:
    return {"place": f"class {name}", "reason": "a key that was made since the keys were destroyed", "clears_on": None}


def accepted(finds: Sequence[Finding], decided: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a decision covers all of these: what was found later, elsewhere or more often is another matter. What follows
    from a row that stays stays with it: a file that is written anew, and what the log says of it."""
    most: Counter[tuple[str, str]] = Counter()
    for one in decided:
        most[_folder(one["place"]), one["spelling"]] += one["count"] if one["reason"] not in FOLLOWS else 0
    now: Counter[tuple[str, str]] = Counter()
    for find in finds:
        if find.reason not in FOLLOWS:
            now[_folder(find.place), find.spelling] += find.count
        elif not any(f"{folder}/".startswith(f"{_folder(find.place)}/") for folder, _ in most):
            return False
    return all(count <= most[key] for key, count in now.items())


def _folder(place: str) -> str:
    """The table's, of a file of its log or of changes; else the folder of the file, the topic, or the place as it is."""
    folder, inside, _ = (
        place.partition("/_delta_log/") if "/_delta_log/" in place else place.partition("/_change_data/")
    )
    return folder if inside else place.rpartition("/")[0] or place


def _accepted_back(scanned: Mapping[str, Any]) -> list[dict[str, Any]]:
    told = scanned.get("accepted", {"finds": ()})
    return [
        {
            "place": one["place"],
            "reason": f"{one['reason']}, {one['count']} times; accepted by {told['by']}: {told['reason']}",
            "clears_on": one["clears_on"],
        }
        for one in told["finds"]
    ]

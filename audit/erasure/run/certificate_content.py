"""The content of one request's certificate, from the recorded steps of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from audit.erasure.evidence.certificate import evidence, make_certificate
from audit.erasure.register.records import WHOLE_RUN, StepName, pipeline_place, request_place
from audit.erasure.run.context import describe_carrier
from audit.erasure.run.scan_storage import NOT_CONFIGURED
from audit.erasure.scan.results import Unseen
from cdf.errors import VerificationError
from cdf.result import plain

if TYPE_CHECKING:
    from audit.erasure.find.copies import Copy
    from audit.erasure.model import PersonalTable, Request
    from audit.erasure.run.context import RunContext
    from audit.erasure.run.destroy_keys import DestroyKeys

__all__ = ["CertificateContent"]

_INTERRUPTED = "does not include what an interrupted attempt removed"
_REQUEST_FILE = (
    "the file or message in which the request was received, and its copies: they contain the person's identifiers in clear "
    "text, and their owners must delete them"
)


class CertificateContent:
    def __init__(self, context: RunContext, keys: DestroyKeys, request: Request) -> None:
        self._context, self._keys, self._request = context, keys, request
        other_requests = {request_place(id) for id in context.ids if id != request.id}
        self._steps = tuple(one for one in context.steps.all() if one.table not in other_requests)
        self._facts = {(one.table, one.step): one.facts for one in self._steps}
        self._scan = self._fact(request_place(request.id), StepName.SCAN) or self._facts[WHOLE_RUN, StepName.SCAN]
        # What the run did in tables and copies of other subjects does not belong in this certificate
        reached = {one.table for one in context.graph.tables_of(request.subject)}
        self._tables = [one for one in context.tables_to_erase() if one.table in reached]
        self._copies = [(one, copy) for one, copy in context.copies_to_erase() if one.table in reached]
        shared = {"counted_for": f"all {len(context.ids)} requests of the run"} if len(context.ids) > 1 else {}
        self._shared: Mapping[str, str] = shared

    def _fact(self, place: str, step: StepName) -> Mapping[str, Any]:
        return self._facts.get((place, step), {})

    def make(self) -> dict[str, Any]:
        """Raises VerificationError where a step is missing, or destroyed keys are there again."""
        context, scan = self._context, self._scan
        # Tables under a hold, also those without a row of the person: their history and copies were not scanned
        kept = self._held_tables()
        table_holds = [
            {"table": one.table, "until": hold.until, "basis": hold.basis}
            for one in kept
            for hold in context.graph.held(one.table, context.now.date())
        ]
        held, new_keys = self._remaining_classes()
        class_holds = [{"class": name, **hold} for name, hold in sorted(held.items())]
        holds: list[Mapping[str, Any]] = [*table_holds, *class_holds]
        purges = list(self._purges())
        return make_certificate(
            request=self._request,
            run=context.run,
            outcome="partial" if kept or held or scan["finds"] else "erased",
            tables=self._table_rows(),
            sinks=list(self._sink_rows()),
            purges=[row for row, _ in purges],
            scan={"finds": scan["finds"], "checked": scan["checked"]},
            pending=[*map(_pending_hold, holds), *map(_pending_key, new_keys), *_accepted_findings(scan)],
            unverified=[*scan["unseen"], *plain(self._removed_since(scan["unseen"]))],
            out_of_reach=[
                _REQUEST_FILE,
                *context.out_of_reach,
                *self._registry_backups(),
                *sorted({text for _, texts in purges for text in texts}),
            ],
            holds=holds,
            evidence=[evidence(f"{one.step} {one.table}".strip(), one.at, one.facts) for one in self._steps],
            unfinished=self._unfinished(),
            issued_at=context.now,
        )

    def _held_tables(self) -> list[PersonalTable]:
        erased = {one.table for one in self._tables}
        return [one for one in self._context.graph.tables_of(self._request.subject) if one.table not in erased]

    def _remaining_classes(self) -> tuple[dict[str, Mapping[str, str]], list[str]]:
        """Return the classes with existing keys: those under a hold, and those with keys made since."""
        context, id = self._context, self._request.id
        tokens = self._keys.known_tokens(id)
        existing = frozenset() if context.registry is None else context.registry.list_active_classes(tokens)
        held = {name: hold for name, hold in self._keys.held_classes().items() if name in existing}
        unheld = sorted(existing - held.keys())
        if unheld and not held:  # under a hold the token stays, and rows that came later have been given keys under it
            raise VerificationError(
                f"keys of request {id} are in the registry again after they were destroyed: {', '.join(unheld)}",
                hint="`deltarelay erase run` again destroys them; find out who can write to the registry",
                classes=unheld,
            )
        return held, unheld

    def _table_rows(self) -> list[dict[str, Any]]:
        rows = self._facts[WHOLE_RUN, StepName.RESOLVE]["rows"]
        return [
            {
                "table": one.table,
                "rows": rows.get(one.table, {}).get(self._request.id, 0),
                "on_erase": one.what_happens,
                "versions": list(self._context.erasing_versions(one.table)),
            }
            for one in self._tables
        ]

    def _sink_rows(self) -> Iterator[dict[str, Any]]:
        for one, copy in self._copies:
            erased = self._fact(pipeline_place(copy.pipeline), StepName.ERASE_COPY)
            yield {
                "pipeline": copy.pipeline,
                "table": one.table,
                **erased.get("counts", {}),
                **({"counted": erased["counted"]} if "counted" in erased else {}),
                **(self._shared if erased.get("counts") else {}),
            }

    def _purges(self) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Yield what was purged in each place, and copies that are out of reach there."""
        excluded = _places(self._context.tables_to_erase(), self._context.copies_to_erase())
        excluded -= _places(self._tables, self._copies)
        for (place, step), purged in self._facts.items():
            if step == StepName.PURGE and place not in excluded:
                attempts = self._fact(place, StepName.PURGING)
                row = {
                    "place": place,
                    **attempts.get("done", purged["done"]),
                    **({"counted": _INTERRUPTED} if attempts.get("interrupted") else {}),
                    **self._shared,
                }
                yield row, purged["out_of_reach"]

    def _removed_since(self, unseen: Sequence[Mapping[str, Any]]) -> list[Unseen]:
        """Return pipelines that were configured when the scan was recorded, and are no longer."""
        named = {one["place"] for one in unseen}
        places = [describe_carrier(one) for one in self._context.missing_carriers()]
        return [Unseen(place, NOT_CONFIGURED) for place in places if place not in named]

    def _registry_backups(self) -> list[str]:
        """Return backups from which a destroyed key could be restored."""
        if self._context.registry is None:
            return []
        days, texts = self._context.registry.list_roots(), []
        for root in self._keys.former_root_keys():
            day = days.get(root)
            if day is None:
                until = "the day on which it is destroyed, once `deltarelay keys rotate` has replaced it"
            elif day > self._context.now.date():
                until = f"{day}, when it is destroyed"
            else:
                continue
            texts.append(f"earlier backups of the key registry, under the root key {root}: until {until}")
        return texts

    def _unfinished(self) -> list[str]:
        """Return the steps that are not recorded: such a step was not done."""
        scan_place = WHOLE_RUN if (WHOLE_RUN, StepName.SCAN) in self._facts else request_place(self._request.id)
        wanted = [(WHOLE_RUN, StepName.RESOLVE), (scan_place, StepName.SCAN)]
        tables = self._context.tables_to_erase()
        wanted += [(one.table, StepName.DELETE) for one in tables] + [(one.table, StepName.PURGE) for one in tables]
        for _, copy in self._context.copies_to_erase():
            if copy.erasure is not None and copy.version() is not None:
                place = pipeline_place(copy.pipeline)
                wanted += [(place, StepName.ERASE_COPY), (place, StepName.PURGE)]
        return [f"{step} {place}".strip() for place, step in wanted if (place, step) not in self._facts]


def _places(tables: Sequence[PersonalTable], copies: Sequence[tuple[PersonalTable, Copy]]) -> set[str]:
    return {one.table for one in tables} | {pipeline_place(copy.pipeline) for _, copy in copies}


def _pending_hold(hold: Mapping[str, Any]) -> dict[str, Any]:
    place = hold["table"] if "table" in hold else f"class {hold['class']}"
    return {"place": place, "reason": f"under a hold: {hold['basis']}", "clears_on": None}


def _pending_key(name: str) -> dict[str, Any]:
    return {
        "place": f"class {name}",
        "reason": "a key that was created after the keys were destroyed",
        "clears_on": None,
    }


def _accepted_findings(scan: Mapping[str, Any]) -> list[dict[str, Any]]:
    accepted = scan.get("accepted", {"finds": ()})
    return [
        {
            "place": one["place"],
            "reason": f"{one['reason']}, {one['count']} times; accepted by {accepted['by']}: {accepted['reason']}",
            "clears_on": one["clears_on"],
        }
        for one in accepted["finds"]
    ]

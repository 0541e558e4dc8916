"""Third step: destroy the data subjects' keys. What they encrypted is unreadable from then on, in every copy at once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from audit.erasure.find.known_values import TOKEN, without_links
from audit.erasure.register.records import WHOLE_RUN, StepName
from audit.identifiers import stored_forms
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from audit.encryption.key_registry import Registry
    from audit.erasure.model import Hold
    from audit.erasure.run.context import RunContext

__all__ = ["DestroyKeys"]

log = logging.getLogger("deltarelay.erasure")

_FOUND_STEPS = (StepName.KEYS_FOUND_AGAIN, StepName.KEYS_FOUND)
"""The later one first."""


class DestroyKeys:
    def __init__(self, context: RunContext) -> None:
        self._context = context

    def is_done(self) -> bool:
        return self._context.registry is None or self._context.steps.has(WHOLE_RUN, StepName.KEYS_DESTROYED)

    def run(self) -> None:
        if self._context.registry is not None:
            self._destroy(self._context.registry, StepName.KEYS_DESTROYED, StepName.KEYS_FOUND)
            self._context.reach("shredded")

    def run_again(self) -> None:
        """Destroy keys that were made since: a trail that was behind has encrypted what it had not read yet under new
        keys."""
        if (registry := self._context.registry) is not None:
            self._destroy(registry, StepName.KEYS_DESTROYED_AGAIN, StepName.KEYS_FOUND_AGAIN)
            self.destroy_restored_keys(registry)

    def _destroy(self, registry: Registry, step: StepName, found_step: StepName) -> None:
        context = self._context
        if context.steps.has(WHOLE_RUN, step):
            return
        context.progress("destroying keys")
        if not context.steps.has(WHOLE_RUN, found_step):
            # Once the last key of a person is destroyed, no identifier leads to the token any more
            found = self._find_tokens(registry)
            context.register.learn(found, context.keys)
            facts = {
                "kept": _hold_facts(context.graph.held_classes(context.now.date())),
                "roots": list(registry.list_roots()),
                "tokens": dict(Counter(id for id, _, _ in found)),
            }
            context.steps.record(WHOLE_RUN, found_step, facts)
        tokens = self.known_tokens()
        registry.destroy_keys(
            tokens, keeping=self.held_classes(), run=context.run
        )  # also classes under a hold since then
        counts = {"keys": len(registry.list_destroyed_keys(tokens)), "subjects": len(tokens)}
        context.steps.record(WHOLE_RUN, step, counts)

    def destroy_restored_keys(self, registry: Registry) -> None:
        """Destroy keys that are there although they were destroyed: restored from a backup, or by hand. A token with a key
        under a hold is left out: rows that came later have been given keys under it."""
        held = self.held_classes()
        for id in self._context.ids:
            tokens = self.known_tokens(id)
            classes = registry.list_active_classes(tokens)
            if classes and classes.isdisjoint(held):
                extra = {"run": self._context.run, "classes": sorted(classes)}
                log.error("destroyed keys existed again", extra=extra)
                registry.destroy_keys(tokens, run=self._context.run)

    def held_classes(self) -> Mapping[str, Mapping[str, str]]:
        """Return the classes under a hold now, and those under one on the day on which keys were destroyed last."""
        context = self._context
        if context.registry is None:
            return {}
        return {**_hold_facts(context.graph.held_classes(context.now.date())), **self._last_found()["kept"]}

    def former_root_keys(self) -> list[str]:
        """Return the root keys of the registry when keys were destroyed last: backups under them contain those keys."""
        roots: list[str] = self._last_found()["roots"]
        return roots

    def _last_found(self) -> Mapping[str, Any]:
        found = [self._context.steps.read(WHOLE_RUN, step) for step in _FOUND_STEPS]
        return next((facts for facts in found if facts is not None), {"kept": {}, "roots": []})

    def _find_tokens(self, registry: Registry) -> set[tuple[str, str, str]]:
        """Return the tokens of the requests' data subjects in the key registry, by any identifier, as the register learns
        them."""
        context = self._context
        subjects = {request.id: context.graph.subjects[request.subject] for request in context.requests}
        given = [
            (request.id, name, value) for request in context.requests for name, value in request.identifiers.items()
        ]
        known = {*given, *without_links(context.register.learned(context.ids, context.keys))}
        found: set[tuple[str, str, str]] = set()
        for name in {subject.name for subject in subjects.values()}:
            theirs = [
                (id, (identifier, form))
                for id, identifier, value in sorted(known)
                if subjects[id].name == name
                for form in stored_forms(value, subjects[id].identifiers[identifier])
            ]
            tokens = registry.find_tokens(name, [[identifier] for _, identifier in theirs])
            of_requests = zip(theirs, tokens, strict=True)
            found |= {(id, TOKEN, token.hex()) for (id, _), token in of_requests if token is not None}
        return found

    def known_tokens(self, *ids: str) -> frozenset[bytes]:
        """Return the tokens of these requests, or of all. The register keeps them encrypted, and deletes them with the
        identifiers. Raises VerificationError where it has fewer than were recorded."""
        context = self._context
        known = context.register.learned(ids or context.ids, context.keys)
        tokens = {(id, value) for id, name, value in known if name == TOKEN}
        counts = Counter(id for id, _ in tokens)
        for step in _FOUND_STEPS:
            recorded = (context.steps.read(WHOLE_RUN, step) or {}).get("tokens", {})
            if lost := [id for id in ids or context.ids if counts[id] < recorded.get(id, 0)]:
                raise VerificationError(
                    f"the register no longer has the token that identifies, in the key registry, the person of "
                    f"{', '.join(lost)}",
                    hint="the register was altered: restore it from its backup",
                    requests=lost,
                )
        return frozenset(bytes.fromhex(value) for _, value in tokens)


def _hold_facts(holds: Mapping[str, Hold]) -> dict[str, Any]:
    return {name: {"until": hold.until, "basis": hold.basis} for name, hold in holds.items()}

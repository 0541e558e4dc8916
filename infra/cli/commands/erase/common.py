"""From the configuration to what the commands of ``deltarelay erase`` work with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from audit.encryption.key_registry import Registry
    from audit.erasure.find.copies import Copy
    from audit.erasure.model import Request
    from audit.erasure.register.secrets import Keys
    from audit.erasure.register.store import Register
    from audit.erasure.scan.files import Files
    from audit.signing.signer import Signer
    from infra.config.erasure_models import Erasure
    from infra.config.models import Project

__all__ = ["Office", "now"]


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Office:
    """The ``erasure`` block of a configuration, at work."""

    def __init__(self, config: Path) -> None:
        from infra.config.load import load

        self.project: Project = load(config)
        if self.project.erasure is None:
            raise ConfigError(
                f"{config} says nothing about erasing people",
                hint="add a block `erasure:` with `state`, `signing_key`, `subjects` and `tables`: "
                "docs/explanation/erasure.md shows one",
            )
        self.erasure: Erasure = self.project.erasure

    @property
    def keys(self) -> Keys:
        return self.erasure.keys()

    @property
    def signer(self) -> Signer:
        return self.erasure.signer()

    def register(self) -> Register:
        register = self._unchecked_register()
        register.check(self.keys, self.erasure.state.identity)
        return register

    def make_register(self) -> str:
        """Make the register where there is none yet, or complete one of an earlier version. → its identity"""
        register = self._unchecked_register()
        register.prepare()
        signed_by = None if self.erasure.signing_key is None else self.signer.verifier.id.hex()
        identity = register.bind(self.keys, signed_by)
        register.check(self.keys, self.erasure.state.identity)
        return identity

    def _unchecked_register(self) -> Register:
        from audit.erasure.register.store import Register

        return Register(self.project.erasure_dsn(), schema=self.erasure.state.schema_name)

    def registry(self) -> Registry | None:
        """Of keys; None where nothing is sealed."""
        return None if self.erasure.key_registry is None else self.project.key_registry()

    def files(self, table: str) -> Files:
        """Everything below the address of a table."""
        return self.project.files(table)

    def copies(self) -> tuple[Copy, ...]:
        """Every pipeline of the configuration; needs a Spark session where one writes a trail."""
        from audit.erasure.find.copies import Copy

        targets = self.project.targets()
        return tuple(
            Copy(name, one.source.table, one.source.key, self.project.build_sink(name), targets[name])
            for name, one in self.project.pipelines.items()
        )

    def requests(self, register: Register, ids: Sequence[str] | None = None) -> tuple[Request, ...]:
        """As they were received, which is checked. Those whose identifiers are forgotten already are not among them."""
        from audit.erasure.model import Request

        standing = [one for one in register.requests(ids) if not one.forgotten]
        identifiers = register.identifiers([one.id for one in standing], self.keys)
        found = tuple(
            Request(
                id=one.id,
                subject=one.subject,
                identifiers=identifiers[one.id],
                received=one.received,
                due=one.due,
                legal_basis=one.legal_basis,
                requester=one.requester,
                approver=one.approver,
            )
            for one in standing
        )
        register.check_content(found, self.keys)
        return found

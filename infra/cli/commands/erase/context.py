"""What the commands of ``deltarelay erase`` work with, from the configuration."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.project import load_project

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

__all__ = ["ErasureContext", "RequestId", "current_time"]

RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")]


def current_time() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class ErasureContext:
    """The ``erasure`` block of a configuration, and what it refers to."""

    def __init__(self, config: Path) -> None:
        self.project: Project = load_project(config)
        if self.project.erasure is None:
            raise ConfigError(
                f"{config} has no `erasure:` block",
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

    def open_register(self) -> Register:
        """Open the erasure register. Raises if it was made with other keys, or is not the configured one."""
        register = self._open_unchecked_register()
        register.check(self.keys, self.erasure.state.identity)
        return register

    def create_register(self) -> str:
        """Create the register, or upgrade one of an earlier version. → its identity"""
        register = self._open_unchecked_register()
        register.prepare()
        signed_by = None if self.erasure.signing_key is None else self.signer.verifier.id.hex()
        identity = register.bind(self.keys, signed_by)
        register.check(self.keys, self.erasure.state.identity)
        return identity

    def _open_unchecked_register(self) -> Register:
        from audit.erasure.register.store import Register

        return Register(self.project.erasure_dsn(), schema=self.erasure.state.schema_name)

    def open_key_registry(self) -> Registry | None:
        """Open the registry of encryption keys; None if no columns are encrypted."""
        return None if self.erasure.key_registry is None else self.project.key_registry()

    def open_files(self, table: str) -> Files:
        """Return the files in the folder of a table."""
        return self.project.files(table)

    def build_copies(self) -> tuple[Copy, ...]:
        """Return a copy for every pipeline of the configuration; needs a Spark session if one writes a trail."""
        from audit.erasure.find.copies import Copy

        targets = self.project.targets()
        return tuple(
            Copy(name, pipeline.source.table, pipeline.source.key, self.project.build_sink(name), targets[name])
            for name, pipeline in self.project.pipelines.items()
        )

    def read_requests(self, register: Register, ids: Sequence[str] | None = None) -> tuple[Request, ...]:
        """Read requests from the register, and check that they are as received.

        Requests whose identifiers have been deleted from the register are left out.
        """
        from audit.erasure.model import Request

        stored = [request for request in register.requests(ids) if not request.forgotten]
        identifiers = register.identifiers([request.id for request in stored], self.keys)
        requests = tuple(
            Request(
                id=request.id,
                subject=request.subject,
                identifiers=identifiers[request.id],
                received=request.received,
                due=request.due,
                legal_basis=request.legal_basis,
                requester=request.requester,
                approver=request.approver,
            )
            for request in stored
        )
        register.check_content(requests, self.keys)
        return requests

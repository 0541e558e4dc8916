"""The demo's audit trail: its key, its verification, and the history of one customer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.demo.compare import KEY, format_row
from infra.demo.folder import TRAIL

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.verification import TrailVerification
    from infra.config.models import Project
    from infra.demo.folder import DemoFolder

__all__ = ["make_key", "format_history", "open_trail", "verify_trail"]


def make_key(folder: DemoFolder) -> None:
    """Create the key that signs checkpoints, and the folder of the anchor."""
    from audit.signing.signer import Signer

    folder.anchors.mkdir()
    Signer.generate("deltarelay-demo").write(folder.signing_key)


def open_trail(project: Project) -> Trail:
    from connectors.delta_audit.sink import DeltaAuditSink

    sink = project.build_sink(TRAIL)
    assert isinstance(sink, DeltaAuditSink)
    return sink.trail


def verify_trail(trail: Trail) -> TrailVerification:
    """Recompute every hash, from the values up to the checkpoint at the anchor."""
    return trail.verify()[0]


def format_history(trail: Trail, customer: int) -> Iterator[str]:
    """The history of one customer, one line per event."""
    from audit.queries.questions import history

    for row in history(trail, {KEY: customer}).collect():
        values = format_row(row["row"].asDict())
        yield f"  version {row['version']:>3}  {row['operation'] or '':<8} {row['change_type']:<17} {values}".rstrip()

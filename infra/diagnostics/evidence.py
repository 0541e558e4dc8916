"""Commits of audit trails that no anchor covers, and erasure requests that are overdue; read without a JVM.

Anchors can be slow, and a ledger is long: callers that must not wait read this in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.checkpoints.coverage import TrailCoverage
    from audit.erasure.register.records import RequestStatus
    from infra.config.models import Project

__all__ = ["count_overdue", "has_anchors", "list_trails", "read_anchoring", "read_coverage", "read_requests"]


def list_trails(project: Project) -> tuple[str, ...]:
    """The pipelines that write an audit trail."""
    return tuple(
        name
        for name, one in project.pipelines.items()
        if project.connections[one.sink.connection].kind == "delta_audit"
    )


def has_anchors(project: Project, name: str) -> bool:
    """Whether the pipeline writes an audit trail with anchors."""
    connection = project.connections[project.pipeline(name).sink.connection]
    settings: Any = connection.settings
    return connection.kind == "delta_audit" and bool(settings.anchors)


def read_coverage(project: Project, name: str, *, with_time: bool = True) -> TrailCoverage | None:
    """Read through which version a trail is signed and anchored. None: there is no trail yet. Raises SinkUnavailable.
    ``with_time``: whether ``unanchored_since`` is needed."""
    from connectors.delta_audit.sink import DeltaAuditSink

    sink = project.build_sink(name)
    assert isinstance(sink, DeltaAuditSink)
    return sink.coverage(with_time=with_time)


def read_anchoring(project: Project, name: str) -> TrailCoverage | None:
    """As ``read_coverage``. Raises the error of an anchor that cannot be read, unless another one covers every commit: then
    it is unknown whether commits are anchored."""
    coverage = read_coverage(project, name)
    if coverage is not None and coverage.unanchored_commits and coverage.failures:
        raise coverage.failures[0].error
    return coverage


def read_requests(project: Project) -> Sequence[RequestStatus]:
    """Read states and dates of all erasure requests. Needs no key of the register."""
    from audit.erasure.register.store import Register

    assert project.erasure is not None
    return Register(project.erasure_dsn(), schema=project.erasure.state.schema_name).requests()


def count_overdue(project: Project) -> int:
    return sum(request.overdue for request in read_requests(project))

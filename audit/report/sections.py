"""The document of a report: what the HTML and the Markdown page have in common."""

from __future__ import annotations

from audit.report.change_sections import (
    list_actors,
    list_deletes_without_ticket,
    list_erasures,
    list_hiding_operations,
    list_readings,
    list_removals,
    list_schema_changes,
    summarize_changes,
)
from audit.report.document import Document, Facts, Section
from audit.report.formatting import format_time, format_utc, format_versions
from audit.report.model import Report
from audit.report.trust_sections import (
    describe_disclosure,
    describe_independent_checks,
    describe_scope,
    describe_verification,
    judge,
    list_checkpoints,
)

__all__ = ["build_document"]


def build_document(report: Report) -> Document:
    sections = [
        Section("Scope", list(describe_scope(report))),
        Section("Verification", list(describe_verification(report))),
        Section("Changes", list(summarize_changes(report))),
        Section("Actors", list(list_actors(report))),
        Section("Operations that can hide data", list(list_hiding_operations(report))),
        Section("Deletes without a ticket", list(list_deletes_without_ticket(report))),
        Section("Schema changes", list(list_schema_changes(report))),
        Section("Removed values", list(list_removals(report))),
        *([Section("Erasures of people", list(list_erasures(report)))] if report.erasures else []),
        *([Section("Access to encrypted values", list(list_readings(report)))] if report.readings else []),
        Section("Checkpoints", list(list_checkpoints(report))),
        Section("How to check this independently", list(describe_independent_checks(report))),
        Section("What this report discloses", list(describe_disclosure())),
    ]
    scope = report.scope
    facts = [
        ("Source table", report.source),
        ("Pipeline", report.pipeline),
        ("Period (UTC)", f"{format_time(scope.first_committed_at)} to {format_time(scope.last_committed_at)}"),
        ("Versions", format_versions(scope.first_version, scope.last_version)),
        ("Report made", f"{format_utc(report.made_at)} by {report.made_by}"),
        ("Column values shown", "none"),
    ]
    return Document("Audit trail report", report.source, judge(report), Facts(facts), sections)

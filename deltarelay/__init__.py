"""The public API of deltarelay, in one namespace: what the guides and the reference use.

    from deltarelay import ChangeFeed, Pipeline, PostgresSink

A name is imported when it is first used, so ``import deltarelay`` takes milliseconds and needs neither PySpark nor a driver.
Everything that is not listed here, in ``cdf.sink`` or in ``cdf.testing`` is internal and can change in every release.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.anchors.base import NamedAnchor
    from audit.anchors.file import FileAnchor
    from audit.anchors.postgres import PostgresAnchor
    from audit.anchors.postgres import statements as postgres_anchor_sql
    from audit.anchors.s3 import S3Anchor
    from audit.audit_trail import Trail
    from audit.proof import Checkpoint, VerifierKey
    from audit.signing.signer import Signer
    from cdf.changes.commits import Commit, Limits
    from cdf.changes.window import Snapshot, Window
    from cdf.errors import (
        BrakeStopped,
        CdfError,
        ConfigError,
        ConflictFound,
        FeatureNotSupported,
        FeedNotEnabled,
        Fenced,
        Interrupted,
        KeyViolation,
        LeaseHeld,
        Paused,
        PositionError,
        RowRejected,
        SchemaDrift,
        SinkError,
        SinkUnavailable,
        SourceError,
        SourceUnavailable,
        TableNotFound,
        TableReplaced,
        TargetNotReady,
        TypeNotSupported,
        VerificationError,
        VersionNotFound,
        VersionsExpired,
        WindowOutOfOrder,
    )
    from cdf.pipeline.brakes import Brakes
    from cdf.pipeline.follow import Following
    from cdf.pipeline.pipeline import Pipeline
    from cdf.results import Followed, FollowStatus, Plan, RunResult, Step
    from cdf.sink import Applied, Capabilities, Conflicts, Inspection, Position, Sink, Source
    from cdf.source.table import ChangeFeed, FeedEnabled, FeedStatus
    from cdf.verify.verify import Difference, Verification
    from connectors.delta_audit.sink import DeltaAuditSink
    from connectors.kafka.client import Cluster
    from connectors.kafka.event_format import EventFormat, check_schema
    from connectors.kafka.sink import KafkaSink
    from connectors.kafka.topics import NewTopic
    from connectors.kafka.write.envelope import snapshot_to_envelope, to_envelope
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.options import Modes
    from connectors.postgres.sink import PostgresSink
    from infra.config.load import load as load_project
    from infra.embedded.kafka import EmbeddedKafka
    from infra.embedded.kafka_jars import kafka_jars
    from infra.s3.settings import delta_rs_options
    from infra.spark.session_builder import session

    __version__: str

__all__ = [
    "__version__",
    # read a change feed and run pipelines
    "ChangeFeed",
    "FeedEnabled",
    "FeedStatus",
    "Pipeline",
    "Limits",
    "Brakes",
    "Plan",
    "Step",
    "RunResult",
    "Followed",
    "FollowStatus",
    "Following",
    "Verification",
    "Difference",
    "session",
    # sinks
    "PostgresSink",
    "Columns",
    "Modes",
    "KafkaSink",
    "Cluster",
    "EventFormat",
    "check_schema",
    "NewTopic",
    "to_envelope",
    "snapshot_to_envelope",
    "DeltaAuditSink",
    # the audit trail
    "Trail",
    "Signer",
    "VerifierKey",
    "Checkpoint",
    "NamedAnchor",
    "FileAnchor",
    "PostgresAnchor",
    "postgres_anchor_sql",
    "S3Anchor",
    # a sink's author
    "Sink",
    "Source",
    "Capabilities",
    "Position",
    "Inspection",
    "Applied",
    "Conflicts",
    "Window",
    "Snapshot",
    "Commit",
    # configuration and servers for trials
    "load_project",
    "delta_rs_options",
    "EmbeddedKafka",
    "kafka_jars",
    # errors
    "CdfError",
    "ConfigError",
    "SourceError",
    "SourceUnavailable",
    "TableNotFound",
    "FeatureNotSupported",
    "TableReplaced",
    "FeedNotEnabled",
    "VersionsExpired",
    "VersionNotFound",
    "SchemaDrift",
    "KeyViolation",
    "SinkError",
    "SinkUnavailable",
    "TargetNotReady",
    "TypeNotSupported",
    "RowRejected",
    "ConflictFound",
    "PositionError",
    "WindowOutOfOrder",
    "Fenced",
    "LeaseHeld",
    "Paused",
    "BrakeStopped",
    "Interrupted",
    "VerificationError",
]

_HOMES = {
    "audit.anchors.base": ("NamedAnchor",),
    "audit.anchors.file": ("FileAnchor",),
    "audit.anchors.postgres": (
        "PostgresAnchor",
        "postgres_anchor_sql",
    ),
    "audit.anchors.s3": ("S3Anchor",),
    "audit.audit_trail": ("Trail",),
    "audit.proof": (
        "Checkpoint",
        "VerifierKey",
    ),
    "audit.signing.signer": ("Signer",),
    "cdf.changes.commits": (
        "Commit",
        "Limits",
    ),
    "cdf.changes.window": (
        "Snapshot",
        "Window",
    ),
    "cdf.pipeline.brakes": ("Brakes",),
    "cdf.errors": (
        "BrakeStopped",
        "CdfError",
        "ConfigError",
        "ConflictFound",
        "FeatureNotSupported",
        "FeedNotEnabled",
        "Fenced",
        "Interrupted",
        "KeyViolation",
        "LeaseHeld",
        "Paused",
        "PositionError",
        "RowRejected",
        "SchemaDrift",
        "SinkError",
        "SinkUnavailable",
        "SourceError",
        "SourceUnavailable",
        "TableNotFound",
        "TableReplaced",
        "TargetNotReady",
        "TypeNotSupported",
        "VerificationError",
        "VersionNotFound",
        "VersionsExpired",
        "WindowOutOfOrder",
    ),
    "cdf.pipeline.follow": ("Following",),
    "cdf.pipeline.pipeline": ("Pipeline",),
    "cdf.results": (
        "FollowStatus",
        "Followed",
        "Plan",
        "RunResult",
        "Step",
    ),
    "cdf.sink": (
        "Applied",
        "Capabilities",
        "Conflicts",
        "Inspection",
        "Position",
        "Sink",
        "Source",
    ),
    "cdf.source.table": (
        "ChangeFeed",
        "FeedEnabled",
        "FeedStatus",
    ),
    "cdf.verify.verify": (
        "Difference",
        "Verification",
    ),
    "connectors.delta_audit.sink": ("DeltaAuditSink",),
    "connectors.kafka.client": ("Cluster",),
    "connectors.kafka.event_format": (
        "EventFormat",
        "check_schema",
    ),
    "connectors.kafka.sink": ("KafkaSink",),
    "connectors.kafka.topics": ("NewTopic",),
    "connectors.kafka.write.envelope": (
        "snapshot_to_envelope",
        "to_envelope",
    ),
    "connectors.postgres.column_mapping": ("Columns",),
    "connectors.postgres.options": ("Modes",),
    "connectors.postgres.sink": ("PostgresSink",),
    "infra.config.load": ("load_project",),
    "infra.embedded.kafka": ("EmbeddedKafka",),
    "infra.embedded.kafka_jars": ("kafka_jars",),
    "infra.s3.settings": ("delta_rs_options",),
    "infra.spark.session_builder": ("session",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_OTHER_NAMES = {"load_project": "load", "postgres_anchor_sql": "statements"}
"""Names that are too general outside of their module."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("deltarelay")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'deltarelay' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), _OTHER_NAMES.get(name, name))
        return value

    def __dir__() -> list[str]:
        return __all__

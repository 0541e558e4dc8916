"""Configuration of a trail. Imports no driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo

from cdf.errors import ConfigError
from connectors.dataset_names import TargetDataset, split_address

if TYPE_CHECKING:
    from audit.anchors.base import NamedAnchor
    from audit.erasure.scan.files import Files
    from cdf.sink import Sink
    from connectors.sink_kind import ConfigurationContext

__all__ = ["DELTA_AUDIT", "DeltaAuditConnection", "DeltaAuditKind", "DeltaAuditOptions", "FileAnchorOptions"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
_S3 = re.compile(r"(?i)s3[an]?://")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("is not a valid name of a trail: use up to 121 letters, digits, dots, dashes and underscores")
    return name


def _check_folder(path: str, info: ValidationInfo) -> str:
    if on_s3 := _S3.match(path):  # one spelling for each address: locks are held by address
        address = "/".join(filter(None, path[on_s3.end() :].split("/")))
        if not address:
            raise ValueError("names no bucket; write it as s3a://BUCKET/PATH")
        return f"s3a://{address}"
    if "://" in path:
        return path.rstrip("/")
    folder = info.context.get("folder") if isinstance(info.context, dict) else None
    expanded = Path(path).expanduser()
    return str(expanded if expanded.is_absolute() or folder is None else folder / expanded)


def _check_key(key: SecretStr) -> SecretStr:
    if not key.get_secret_value().startswith("PRIVATE+KEY+"):
        raise ValueError(
            "is not a signing key: create one with `deltarelay audit keygen`, and read it from a file with "
            '"${file:/run/secrets/audit.key}"'
        )
    return key


def _check_verifier(key: str) -> str:
    from audit.proof import ProofError, VerifierKey

    try:
        return str(VerifierKey.parse(key))
    except ProofError:
        raise ValueError(
            "is not a verifier key: `deltarelay audit keygen` prints it, in the form NAME+ID+BASE64"
        ) from None


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class FileAnchorOptions(_Model):
    """A folder, preferably on storage where files cannot be changed."""

    kind: Literal["file"] = Field(title="Kind", description="A folder of this machine or of a mount.")
    path: Annotated[str, AfterValidator(_check_folder)] = Field(
        title="Folder",
        description="It must exist: if the storage is not mounted, a newly created folder would not be on that storage.",
    )

    def build(self, context: ConfigurationContext) -> NamedAnchor:  # noqa: ARG002
        from audit.anchors.base import NamedAnchor
        from audit.anchors.file import FileAnchor

        return NamedAnchor(self.path, FileAnchor(Path(self.path)))


class PostgresAnchorOptions(_Model):
    """An append-only table, preferably with another owner."""

    kind: Literal["postgres"] = Field(title="Kind", description="A table of PostgreSQL.")
    connection: str = Field(title="Connection", description="The name of a connection of kind postgres.")
    schema_name: str = Field(
        default="deltarelay_anchor",
        alias="schema",
        title="Schema",
        description="The schema of the table; both are created if they do not exist.",
    )

    def build(self, context: ConfigurationContext) -> NamedAnchor:
        from audit.anchors.base import NamedAnchor
        from audit.anchors.postgres import PostgresAnchor

        dsn = context.get_connection(self.connection, "postgres").dsn.get_secret_value()
        return NamedAnchor(self.connection, PostgresAnchor(dsn, schema=self.schema_name))


class S3AnchorOptions(_Model):
    """A bucket, preferably with Object Lock."""

    kind: Literal["s3"] = Field(title="Kind", description="Objects of a bucket.")
    url: Annotated[str, Field(pattern=r"^s3a?://[^/]+")] = Field(title="Address", description="`s3://BUCKET/PREFIX`.")
    object_lock_days: int | None = Field(
        default=None,
        ge=1,
        title="Object Lock (days)",
        description="Checkpoints cannot be deleted for this number of days (compliance mode); the bucket must have Object "
        "Lock. If not set: the bucket's own default.",
    )

    def build(self, context: ConfigurationContext) -> NamedAnchor:
        from audit.anchors.base import NamedAnchor
        from audit.anchors.s3 import S3Anchor

        bucket = self.url.partition("://")[2].partition("/")[0]
        anchor = S3Anchor(self.url, lambda: context.create_s3_client(bucket), object_lock_days=self.object_lock_days)
        return NamedAnchor(self.url, anchor)


class DeltaAuditConnection(_Model):
    """Where trails are stored, which key signs them, and where else their checkpoints are stored."""

    path: Annotated[str, AfterValidator(_check_folder)] = Field(
        title="Folder",
        description="The trails of this connection are folders below it: a path or a URL to which Spark can write.",
    )
    signing_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = Field(
        default=None,
        title="Signing key",
        description="The private key of `deltarelay audit keygen`, preferably as ${file:/run/secrets/audit.key}. If not "
        "set: the trail is written without signatures.",
    )
    keys: tuple[Annotated[str, AfterValidator(_check_verifier)], ...] = Field(
        default=(),
        title="Verifier keys",
        description="Further keys whose checkpoints are accepted: those of former signing keys, or, without a signing key, "
        "the key with which the trail is signed elsewhere.",
    )
    anchors: tuple[
        Annotated[FileAnchorOptions | PostgresAnchorOptions | S3AnchorOptions, Field(discriminator="kind")], ...
    ] = Field(
        default=(),
        title="Anchors",
        description="Where each checkpoint is published. Users who can write to the trail should not be able to change "
        "checkpoints there.",
    )


class DeltaAuditOptions(_Model):
    """The trail to which a pipeline writes."""

    table: Annotated[str, AfterValidator(_check_name)] = Field(
        title="Trail", description="The name of its folder below the connection's path. One pipeline for each trail."
    )


class DeltaAuditKind:
    """The sink kind ``delta_audit``."""

    name = "delta_audit"
    connection = DeltaAuditConnection
    options = DeltaAuditOptions

    def target(self, options: DeltaAuditOptions) -> str:
        return options.table

    def describe_dataset(self, connection: DeltaAuditConnection, options: DeltaAuditOptions) -> TargetDataset:
        return TargetDataset(*split_address(f"{connection.path}/{options.table}"))

    def build(self, connection: DeltaAuditConnection, options: DeltaAuditOptions, *, pipeline: str) -> Sink:
        return self.build_in_context(connection, options, pipeline=pipeline, context=_EmptyContext())

    def build_in_context(
        self,
        connection: DeltaAuditConnection,
        options: DeltaAuditOptions,
        *,
        pipeline: str,
        context: ConfigurationContext,
    ) -> Sink:
        from audit.proof import VerifierKey
        from audit.signing.signer import Signer
        from connectors.delta_audit.sink import DeltaAuditSink

        def list_files(address: str) -> Files:
            from audit.erasure.scan.s3_files import files_at

            return files_at(address, context.create_s3_client, context.build_delta_rs_options)

        path, key = f"{connection.path}/{options.table}", connection.signing_key
        return DeltaAuditSink(
            path,
            signer=None if key is None else Signer.parse(key.get_secret_value()),
            keys=tuple(VerifierKey.parse(text) for text in connection.keys),
            anchors=tuple(anchor.build(context) for anchor in connection.anchors),
            storage_options=lambda: context.build_delta_rs_options(f"{path}/ledger"),
            files=list_files,
            sealing=context.build_encryption(pipeline),
            registry=context.get_key_registry(),
        )


class _EmptyContext:
    """No other configuration: anchors that need a connection or a bucket cannot be built."""

    def get_connection(self, name: str, kind: str) -> Any:
        raise ConfigError(f"there is no connection `{name}` of kind {kind}", hint="an anchor refers to it")

    def create_s3_client(self, bucket: str) -> Any:
        raise ConfigError(f"the bucket {bucket} is not configured", hint="an anchor refers to it")

    def build_delta_rs_options(self, address: str) -> None:  # noqa: ARG002
        return None

    def build_encryption(self, pipeline: str) -> None:  # noqa: ARG002
        return None

    def get_key_registry(self) -> None:
        return None


DELTA_AUDIT = DeltaAuditKind()

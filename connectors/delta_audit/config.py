"""What may be configured for a trail. Imports no driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from audit.anchors.base import NamedAnchor
    from cdf.sink.contract import Sink
    from connectors.registry import Surroundings

__all__ = ["DELTA_AUDIT", "DeltaAuditConnection", "DeltaAuditKind", "DeltaAuditOptions", "FileAnchorOptions"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
_S3 = re.compile(r"(?i)s3[an]?://")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("is no name of a trail: letters, digits, dots, dashes and underscores, up to 121 of them")
    return name


def _check_folder(path: str, info: ValidationInfo) -> str:
    if on_s3 := _S3.match(path):  # one spelling: another one would be another lock, and the two exclude nobody
        place = "/".join(filter(None, path[on_s3.end() :].split("/")))
        if not place:
            raise ValueError("names no bucket; write it as s3a://BUCKET/PATH")
        return f"s3a://{place}"
    if "://" in path:
        return path.rstrip("/")
    folder = info.context.get("folder") if isinstance(info.context, dict) else None
    whole = Path(path).expanduser()
    return str(whole if whole.is_absolute() or folder is None else folder / whole)


def _check_key(key: SecretStr) -> SecretStr:
    if not key.get_secret_value().startswith("PRIVATE+KEY+"):
        raise ValueError(
            'is no signing key: `deltarelay audit keygen` makes one, "${file:/run/secrets/audit.key}" takes it from a file'
        )
    return key


def _check_verifier(key: str) -> str:
    from audit.proof import ProofError, VerifierKey

    try:
        return str(VerifierKey.parse(key))
    except ProofError:
        raise ValueError("is no verifier key: `deltarelay audit keygen` prints it, NAME+ID+BASE64") from None


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class FileAnchorOptions(_Model):
    """A folder, best on storage that keeps what was written."""

    kind: Literal["file"] = Field(title="Kind", description="A folder of this machine or of a mount.")
    path: Annotated[str, AfterValidator(_check_folder)] = Field(
        title="Folder", description="It has to be there: one that is made where nothing is mounted would keep nothing."
    )

    def named(self, among: Surroundings) -> NamedAnchor:  # noqa: ARG002
        from audit.anchors.base import NamedAnchor
        from audit.anchors.file import FileAnchor

        return NamedAnchor(self.path, FileAnchor(Path(self.path)))


class PostgresAnchorOptions(_Model):
    """A table that only grows, best under another owner."""

    kind: Literal["postgres"] = Field(title="Kind", description="A table of PostgreSQL.")
    connection: str = Field(title="Connection", description="The name of a connection of kind postgres.")
    schema_name: str = Field(
        default="deltarelay_anchor", alias="schema", title="Schema", description="Where the table is, or is made."
    )

    def named(self, among: Surroundings) -> NamedAnchor:
        from audit.anchors.base import NamedAnchor
        from audit.anchors.postgres import PostgresAnchor

        dsn = among.connection(self.connection, "postgres").dsn.get_secret_value()
        return NamedAnchor(self.connection, PostgresAnchor(dsn, schema=self.schema_name))


class S3AnchorOptions(_Model):
    """A bucket, best with Object Lock."""

    kind: Literal["s3"] = Field(title="Kind", description="Objects of a bucket.")
    url: Annotated[str, Field(pattern=r"^s3a?://[^/]+")] = Field(title="Place", description="`s3://BUCKET/PREFIX`.")
    object_lock_days: int | None = Field(
        default=None,
        ge=1,
        title="Object Lock (days)",
        description="Nobody can remove a checkpoint for so long (compliance mode); the bucket needs Object Lock. Left out: "
        "the bucket's own default.",
    )

    def named(self, among: Surroundings) -> NamedAnchor:
        from audit.anchors.base import NamedAnchor
        from audit.anchors.s3 import S3Anchor

        bucket = self.url.partition("://")[2].partition("/")[0]
        anchor = S3Anchor(self.url, lambda: among.s3_client(bucket), object_lock_days=self.object_lock_days)
        return NamedAnchor(self.url, anchor)


class DeltaAuditConnection(_Model):
    """Where trails are kept, who signs them, and where their checkpoints stand besides."""

    path: Annotated[str, AfterValidator(_check_folder)] = Field(
        title="Folder",
        description="The trails of this connection are folders below it: a path or a URL that Spark can write.",
    )
    signing_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = Field(
        default=None,
        title="Signing key",
        description="The private key of `deltarelay audit keygen`, best as ${file:/run/secrets/audit.key}. Left out: the "
        "trail is written, and nothing is signed.",
    )
    keys: tuple[Annotated[str, AfterValidator(_check_verifier)], ...] = Field(
        default=(),
        title="Verifier keys",
        description="Further keys whose checkpoints are believed: those from before the signing key was changed, or, "
        "where no signing key is, the key of whoever signs.",
    )
    anchors: tuple[
        Annotated[FileAnchorOptions | PostgresAnchorOptions | S3AnchorOptions, Field(discriminator="kind")], ...
    ] = Field(
        default=(),
        title="Anchors",
        description="Where each checkpoint is published. Whoever can write to the trail should not be able to alter them "
        "there.",
    )


class DeltaAuditOptions(_Model):
    """Which trail a pipeline writes."""

    table: Annotated[str, AfterValidator(_check_name)] = Field(
        title="Trail", description="The name of its folder below the connection's path. One pipeline to a trail."
    )


class DeltaAuditKind:
    """The sink kind ``delta_audit``."""

    name = "delta_audit"
    connection = DeltaAuditConnection
    options = DeltaAuditOptions

    def target(self, options: DeltaAuditOptions) -> str:
        return options.table

    def build(self, connection: DeltaAuditConnection, options: DeltaAuditOptions, *, pipeline: str) -> Sink:
        return self.build_among(connection, options, pipeline=pipeline, among=_Nothing())

    def build_among(
        self,
        connection: DeltaAuditConnection,
        options: DeltaAuditOptions,
        *,
        pipeline: str,
        among: Surroundings,
    ) -> Sink:
        from audit.erasure.scan.s3_files import files_at
        from connectors.delta_audit.sink import DeltaAuditSink

        path = f"{connection.path}/{options.table}"
        return DeltaAuditSink(
            path,
            **_trust(connection, among),
            storage_options=lambda: among.delta_rs_options(f"{path}/ledger"),
            files=lambda address: files_at(address, among.s3_client, among.delta_rs_options),
            sealing=among.sealing(pipeline),
            registry=among.key_registry(),
        )


class _Nothing:
    """No configuration around it: anchors that need one cannot be had."""

    def connection(self, name: str, kind: str) -> Any:
        raise ConfigError(f"there is no connection `{name}` of kind {kind}", hint="an anchor names it")

    def s3_client(self, bucket: str) -> Any:
        raise ConfigError(f"nothing is configured for the bucket {bucket}", hint="an anchor names it")

    def delta_rs_options(self, address: str) -> None:  # noqa: ARG002
        return None

    def sealing(self, pipeline: str) -> None:  # noqa: ARG002
        return None

    def key_registry(self) -> None:
        return None


def _trust(connection: DeltaAuditConnection, among: Surroundings) -> dict[str, Any]:
    from audit.proof import VerifierKey
    from audit.signing.signer import Signer

    key = connection.signing_key
    return {
        "signer": None if key is None else Signer.parse(key.get_secret_value()),
        "keys": tuple(VerifierKey.parse(one) for one in connection.keys),
        "anchors": tuple(anchor.named(among) for anchor in connection.anchors),
    }


DELTA_AUDIT = DeltaAuditKind()

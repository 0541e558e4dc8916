"""What the parts of the sink share: where the trail is, who signs it, and what is encrypted in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import ConfigError
from cdf.session import find_session, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from audit.anchors.base import NamedAnchor
    from audit.audit_trail import Trail
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import Registry
    from audit.proof import VerifierKey
    from audit.signing.signer import Signer

__all__ = ["TrailContext"]


@dataclass(frozen=True, slots=True)
class TrailContext:
    path: str
    """Folder of the trail, without a slash at the end."""
    session: SparkSession | None
    signer: Signer | None
    keys: Sequence[VerifierKey]
    anchors: Sequence[NamedAnchor]
    encryption: ColumnEncryption | None
    """The columns that are written encrypted; None: none."""
    registry: Callable[[], Registry] | None
    """Opens the key registry. A window may have been written encrypted before the configuration changed."""

    @property
    def has_spark(self) -> bool:
        return self.session is not None or find_session() is not None

    @property
    def spark(self) -> SparkSession:
        """The session that was passed to the sink, otherwise the active one: the session that reads the source."""
        session = self.session or find_session()
        if session is None:
            raise ConfigError("a trail needs a Spark session", hint="pass one to the sink, or create one first")
        if is_connect(session) and "://" not in self.path and not self.path.startswith("/"):
            raise ConfigError(
                f"the path {self.path} of a trail must be absolute over Spark Connect",
                hint="client and server have different working directories",
            )
        return session

    @property
    def trail(self) -> Trail:
        from audit.audit_trail import Trail

        return Trail(
            self.spark,
            self.path,
            signer=self.signer,
            keys=self.keys,
            anchors=self.anchors,
            sealing=self.encryption,
        )

    def add_own_columns(self, schema: StructType) -> StructType:
        """Return the source's schema with the column that describes what is encrypted, if anything is."""
        return schema if self.encryption is None else self.encryption.extend_schema(schema)

"""The interface of a sink kind: what users may configure for it, and how its sink is built from that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from audit.database import Database
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import Registry
    from cdf.sink import Sink
    from connectors.dataset_names import TargetDataset

__all__ = [
    "ConfigurationContext",
    "ContextualSinkKind",
    "DatasetNaming",
    "MigratedKind",
    "SinkKind",
    "TargetNaming",
]


@runtime_checkable
class SinkKind(Protocol):
    """A kind of sink.

    Both models are frozen and refuse unknown fields (``extra="forbid"``), declare passwords as ``SecretStr``, and can be
    imported without the driver of the target.
    """

    @property
    def name(self) -> str:
        """The value of ``kind:``, which is also the name of the entry point."""
        ...

    @property
    def connection(self) -> type[BaseModel]:
        """The fields of a ``connections:`` entry besides ``kind``."""
        ...

    @property
    def options(self) -> type[BaseModel]:
        """The fields of a pipeline's ``sink:`` besides ``connection``."""
        ...

    def build(self, connection: Any, options: Any, *, pipeline: str) -> Sink:
        """Build the sink from validated settings; opens no connection. Imports the driver, which nothing else does."""
        ...


@runtime_checkable
class TargetNaming(Protocol):
    """Optional feature of a kind: name the target of some options, however these are written.

    Two pipelines of one connection must not share a target. Without this feature, equal options mean the same target.
    """

    def target(self, options: Any) -> str: ...


@runtime_checkable
class DatasetNaming(Protocol):
    """Optional feature of a kind: describe the target for lineage events, without secrets; opens no connection."""

    def describe_dataset(self, connection: Any, options: Any) -> TargetDataset: ...


@runtime_checkable
class MigratedKind(Protocol):
    """Optional feature of a kind: its sinks keep their state in a schema of PostgreSQL.

    ``deltarelay upgrade`` migrates it.
    """

    def open_state(self, connection: Any) -> Database:
        """Return the schema of all pipelines that use the connection; opens no connection."""
        ...


class ConfigurationContext(Protocol):
    """What a kind may request from the rest of the configuration."""

    def get_connection(self, name: str, kind: str) -> Any:
        """Return the settings of a connection. Raises ConfigError if it does not exist or is of another kind."""
        ...

    def create_s3_client(self, bucket: str) -> Any:
        """Return a boto3 client with the credentials and the endpoint that are configured for the bucket."""
        ...

    def build_delta_rs_options(self, address: str) -> Mapping[str, str] | None:
        """Return the options with which delta-rs reads a table at the address; connects to its bucket first."""
        ...

    def build_encryption(self, pipeline: str) -> ColumnEncryption | None:
        """Return the columns that a history of the pipeline's table must encrypt; None for none."""
        ...

    def get_key_registry(self) -> Callable[[], Registry] | None:
        """Return a function that opens the key registry; None if there is no registry.

        There may be a registry although no columns are configured for encryption.
        """
        ...


@runtime_checkable
class ContextualSinkKind(Protocol):
    """Optional feature of a kind: build the sink with other parts of the configuration, instead of ``build``."""

    def build_in_context(
        self, connection: Any, options: Any, *, pipeline: str, context: ConfigurationContext
    ) -> Sink: ...

"""The Kafka sink."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.kafka.client import Cluster
    from connectors.kafka.sink import KafkaSink
    from connectors.kafka.write.envelope import EventFormat, check_schema, snapshot_to_envelope, to_envelope

__all__ = ["Cluster", "EventFormat", "KafkaSink", "check_schema", "snapshot_to_envelope", "to_envelope"]

_FROM = {"Cluster": "client", "KafkaSink": "sink"}


def __getattr__(name: str) -> Any:
    """Imported when asked for: reading a configuration needs neither Spark nor a driver."""
    if name in __all__:
        import importlib

        return getattr(importlib.import_module(f"connectors.kafka.{_FROM.get(name, 'write.envelope')}"), name)
    raise AttributeError(f"module 'connectors.kafka' has no attribute {name!r}")

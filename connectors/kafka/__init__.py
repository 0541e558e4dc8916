"""The Kafka sink."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.kafka.client import Cluster
    from connectors.kafka.event_format import EventFormat, check_schema
    from connectors.kafka.sink import KafkaSink
    from connectors.kafka.write.envelope import snapshot_to_envelope, to_envelope

__all__ = ["Cluster", "EventFormat", "KafkaSink", "check_schema", "snapshot_to_envelope", "to_envelope"]

_MODULES = {
    "Cluster": "client",
    "EventFormat": "event_format",
    "KafkaSink": "sink",
    "check_schema": "event_format",
    "snapshot_to_envelope": "write.envelope",
    "to_envelope": "write.envelope",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: reading a configuration needs neither Spark nor the Kafka client."""
    if name in __all__:
        import importlib

        return getattr(importlib.import_module(f"connectors.kafka.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'connectors.kafka' has no attribute {name!r}")

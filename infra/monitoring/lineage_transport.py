"""Builds the transport of OpenLineage events from the configuration, with time limits. Import it late: extra ``lineage``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from openlineage.client.serde import Serde
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
from openlineage.client.transport.kafka import KafkaConfig, KafkaTransport

from cdf.extras import require_extra
from infra.config import monitoring_models as models

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.transport.transport import Transport

    from infra.config.models import Project

__all__ = ["Sender", "build_transport"]

SECONDS = 3.0
"""Time limit of one event."""
PAUSE_SECONDS = 30.0
"""After a failure nothing is sent for this time: the queue must not wait for each event in turn."""


class Sender:
    """Sends events, and gives up for a while after a failure."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._paused_until = float("-inf")

    def send(self, event: RunEvent) -> None:
        if time.monotonic() < self._paused_until:
            raise TimeoutError("the server did not take an earlier event")
        try:
            self._transport.emit(event)
        except Exception:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise


def build_transport(project: Project, settings: models.Lineage) -> Transport:
    chosen = settings.transport
    if isinstance(chosen, models.FileTransport):
        return FileTransport(FileConfig(str(chosen.path), append=True))
    if isinstance(chosen, models.HttpTransport):
        key = None if chosen.api_key is None else chosen.api_key.get_secret_value()
        return HttpTransport(
            HttpConfig(
                chosen.url,
                endpoint=chosen.endpoint,
                timeout=SECONDS,
                auth=TokenProvider({}) if key is None else ApiKeyTokenProvider({"api_key": key}),
                retry={"total": 0},
            )
        )
    require_extra("kafka")
    return _BoundedKafkaTransport(KafkaConfig(_build_client_settings(project, chosen.connection), chosen.topic))


def _build_client_settings(project: Project, connection: str) -> dict[str, Any]:
    settings: Any = project.connections[connection].settings
    security = {} if settings.security is None else settings.security.build_client_settings()
    limits = {"message.timeout.ms": round(SECONDS * 1000), "enable.idempotence": False}
    return {"bootstrap.servers": settings.bootstrap_servers, **settings.client, **security, **limits}


class _BoundedKafkaTransport(KafkaTransport):
    """Waits for each event for a limited time, and raises where it was not stored."""

    def emit(self, event: Any) -> None:
        assert self.producer is not None
        failed: list[str] = []
        self.producer.produce(
            topic=self.topic,
            key=self._get_message_key(event),
            value=Serde.to_json(event).encode(),
            on_delivery=lambda error, _: failed.append(error.name()) if error is not None else None,
        )
        if self.producer.flush(SECONDS + 1) or failed:
            raise TimeoutError("Kafka did not store the event")

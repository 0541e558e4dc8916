"""The addresses of `notify`, and messages to them through Apprise, with time limits. No address is shown or logged."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdf.errors import ConfigError
from cdf.extras import require_extra
from cdf.result import Result

if TYPE_CHECKING:
    import apprise

    from infra.config.monitoring_models import Notify

__all__ = ["Address", "Sent", "build_addresses"]

SECONDS = 4
"""Time limit for connecting, and for each answer."""


@dataclass(frozen=True, slots=True)
class Sent(Result):
    address: str
    """Its number and its scheme, as in ``2 (mailto)``: the rest may be a secret."""
    error: str | None
    """What Apprise says, without any part of the address; None: the message was taken."""


class Address:
    def __init__(self, number: int, url: str) -> None:
        import apprise

        scheme = url.partition(":")[0]
        self.label = f"{number} ({scheme})" if re.fullmatch(r"[a-z0-9]{1,20}", scheme) else str(number)
        self._secrets = sorted({one for one in re.split(r"[^\w.-]+", url) if len(one) >= 4 and one != scheme}, key=len)
        with _collect_messages() as messages:
            service = apprise.Apprise.instantiate(url)
        if not isinstance(service, apprise.NotifyBase):
            raise ConfigError(
                f"notify.urls: address {self.label} is not one that Apprise can use"
                + (f": {self._mask(messages[-1])}" if messages else ""),
                hint="compare it with https://appriseit.com/services/",
            )
        service.socket_connect_timeout = service.socket_read_timeout = float(SECONDS)
        self._service: apprise.NotifyBase = service

    def send(self, title: str, text: str, kind: Literal["failure", "success", "info"]) -> Sent:
        """Never raises. ``kind``: Apprise's; PagerDuty and others derive urgency or colour from it."""
        with _collect_messages() as messages:
            try:
                is_taken = bool(self._service.notify(body=text, title=title, notify_type=kind))
            except Exception as error:
                is_taken, messages = False, [*messages, type(error).__name__]
        return Sent(self.label, None if is_taken else self._mask(messages[-1] if messages else "the server refused it"))

    def _mask(self, text: str) -> str:
        for one in reversed(self._secrets):
            text = text.replace(one, "***")
        return text.strip()


def build_addresses(settings: Notify) -> Sequence[Address]:
    """Raises ConfigError for the first address that Apprise cannot use; connects to nothing."""
    require_extra("notify")
    return [Address(number, url.get_secret_value()) for number, url in enumerate(settings.urls, start=1)]


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _collect_messages() -> Iterator[list[str]]:
    """Collect what Apprise logs, which may contain addresses, instead of showing it."""
    logger, collector = logging.getLogger("apprise"), _Collector()
    logger.propagate = False
    logger.addHandler(collector)
    try:
        yield collector.messages
    finally:
        logger.removeHandler(collector)

"""How the suite looks into a ``MemoryStore``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdf.sink import Capabilities, Sink
from cdf.testing import MemorySink, MemoryStore


class MemoryHarness:
    """``make`` builds the sink under test on the store that all instances share."""

    def __init__(self, make: Callable[..., Sink] = MemorySink, **options: Any) -> None:
        self.store = MemoryStore()
        self._make = make
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        return self.new_sink().capabilities

    def new_sink(self, **overrides: Any) -> Sink:
        return self._make(self.store, **{**self._options, **overrides})

    def read_rows(self) -> list[dict[str, Any]]:
        return self.store.read_rows()

    def expire_lease(self) -> None:
        self.store.expire_lease()

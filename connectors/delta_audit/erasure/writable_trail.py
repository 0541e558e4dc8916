"""What the erasure needs from the sink that writes the trail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail
    from cdf.sink import Position

__all__ = ["WritableTrail"]


class WritableTrail(Protocol):
    path: str

    @property
    def trail(self) -> Trail:
        """Reads the trail; the sink need not be open."""
        ...

    def open_for(self, table: str, key: tuple[str, ...], pipeline: str) -> AbstractContextManager[Position]:
        """Open the sink, and with it acquire the lease, for the block."""
        ...

    def remove(self, places: DataFrame, reasons: Mapping[str, str]) -> None:
        """Remove the values of the events at ``places`` from the open trail."""
        ...

    def remove_encrypted(self, keys: Collection[bytes], reasons: Mapping[str, str]) -> None:
        """Remove from the open trail what these keys have encrypted."""
        ...

    def record_erasure_steps(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Record steps of an erasure in the ledger of the open trail."""
        ...

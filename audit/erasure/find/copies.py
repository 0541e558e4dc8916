"""The pipelines that copy a table with personal data to a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.erasure.register.records import Carrier
from audit.erasure.sink_contract import Erasable, SinkErasure, TrailErasure
from cdf.sink import Tracked

if TYPE_CHECKING:
    from cdf.sink import Sink

__all__ = ["Copy"]


@dataclass(frozen=True, slots=True)
class Copy:
    """One pipeline and the target that it writes."""

    pipeline: str
    table: str
    key: tuple[str, ...]
    sink: Sink
    target: str = ""
    """The target in words, such as ``public.customers of warehouse (postgres)``."""

    @property
    def carrier(self) -> Carrier:
        return Carrier(self.pipeline, self.table, self.target)

    @property
    def erasure(self) -> SinkErasure | None:
        """The sink's erasure component; None where the sink has none."""
        return self.sink.erasure if isinstance(self.sink, Erasable) else None

    @property
    def trail_erasure(self) -> TrailErasure | None:
        """The erasure component of an audit trail; None for any other sink."""
        erasure = self.erasure
        return erasure if isinstance(erasure, TrailErasure) else None

    def version(self) -> int | None:
        """Return the position of the sink; None while the target is empty, or where the sink does not report one."""
        return self.sink.position().version if isinstance(self.sink, Tracked) else None

    def lacks_position(self) -> bool:
        """Return whether the sink keeps a position and has none: nothing was erased there, whatever the target holds."""
        return isinstance(self.sink, Tracked) and self.sink.position().version is None

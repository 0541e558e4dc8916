"""What a trail says that its source holds: the last event of each record, for ``verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.verify.spark_image import FrameImage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.trail.trail import Trail
    from cdf.sink.contract import Position, Source

__all__ = ["TrailImage"]


class TrailImage(FrameImage):
    def __init__(self, trail: Trail, position: Position, source: Source) -> None:
        super().__init__(position, source)
        self._trail = trail

    def frame(self) -> DataFrame:
        """Raises ConfigError where the trail does not begin with all that the table held."""
        from audit.queries.questions import as_of

        if self._position.version is None:
            raise AssertionError("an empty trail is not compared")
        rows = as_of(self._trail, self._source.key, self._position.version)
        return rows.select(*(f"`{name.replace('`', '``')}`" for name in self._source.schema.names))

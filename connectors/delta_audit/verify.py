"""The rows of the source according to a trail, for ``verify``: the last event of each record."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.encryption.column_groups import Unreadable
from audit.queries.fields import UNREADABLE
from cdf.verify.spark_image import FrameImage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail
    from cdf.sink import Position, Source

__all__ = ["TrailImage"]

log = logging.getLogger("deltarelay.audit")


class TrailImage(FrameImage):
    """The last event of each record. Columns that are encrypted in some row are not compared, because verification has
    no keys. ``deltarelay audit reconcile`` compares them too."""

    def __init__(self, trail: Trail, position: Position, source: Source) -> None:
        super().__init__(position, source)
        self._trail = trail
        self._encrypted: frozenset[str] | None = None

    def frame(self) -> DataFrame:
        """Raises ConfigError if the trail does not start with a baseline or the creation of the table."""
        from audit.queries.questions import as_of

        if self._position.version is None:
            raise AssertionError("an empty trail is not compared")
        rows = as_of(self._trail, self._source.key, self._position.version)
        unreadable = [UNREADABLE] if UNREADABLE in rows.columns else []
        return rows.select(*(f"`{name.replace('`', '``')}`" for name in self._source.schema.names), *unreadable)

    def schema(self) -> StructType:
        if self._encrypted is None:
            self._encrypted = self._find_encrypted()
            if self._encrypted:
                columns = ", ".join(sorted(self._encrypted))
                log.warning(
                    "encrypted columns are not compared", extra={"table": self._source.table, "columns": columns}
                )
        return StructType([field for field in self._source.schema.fields if field.name not in self._encrypted])

    def _find_encrypted(self) -> frozenset[str]:
        from pyspark.sql import functions as F

        rows = self._persisted()
        if UNREADABLE not in rows.columns:
            return frozenset()
        # A value that is unreadable for another reason, tampering above all, has to be reported as a difference
        encrypted = F.map_filter(UNREADABLE, lambda _, reason: reason == str(Unreadable("sealed")))
        return frozenset(row[0] for row in rows.select(F.explode(F.map_keys(encrypted))).distinct().collect())

"""The columns of a source at the versions of a window, read without a JVM, and the names that they had before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError
from infra.diagnostics.delta_table import explain_spark_only
from infra.s3.delta_rs import prepare_delta_rs

if TYPE_CHECKING:
    from infra.s3.model import Storage

__all__ = ["SourceColumn", "SourceColumns"]

_PHYSICAL_NAME = "delta.columnMapping.physicalName"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    name: str
    type: str
    """As in Delta's log; of a nested type only its kind."""
    former_names: tuple[str, ...] = ()
    """Its names at the beginning of the window, where the column was renamed since then."""


class SourceColumns:
    """Reads the schema of one table at single versions. The last one is kept: it begins the next window."""

    def __init__(self, address: str, storage: Storage | None) -> None:
        self._address, self._storage = address, storage
        self._handle: Any = None
        self._kept: tuple[int, dict[str, tuple[str, str]]] | None = None

    def read(self, first: int, last: int) -> tuple[SourceColumn, ...]:
        """The columns at version ``last``, with their names at ``first``. Empty: only Spark can read the table."""
        from deltalake.exceptions import DeltaError

        if explain_spark_only(self._address) is not None:
            return ()
        try:
            # Read in this order: the schema that is kept is the one of ``last``
            before = self._read_version(first)
            after = self._read_version(last)
        except (CdfError, DeltaError, OSError, ValueError):
            return ()
        return tuple(
            SourceColumn(name, kind, (before[id][0],) if id in before and before[id][0] != name else ())
            for id, (name, kind) in after.items()
        )

    def _read_version(self, version: int) -> dict[str, tuple[str, str]]:
        """Physical name → name and type."""
        from deltalake import DeltaTable

        if self._kept is not None and self._kept[0] == version:
            return self._kept[1]
        if self._handle is None:
            address, options = prepare_delta_rs(self._address, self._storage)
            self._handle = DeltaTable(address, version=version, storage_options=options)
        else:
            self._handle.load_as_version(version)
        columns = {}
        for one in json.loads(self._handle.schema().to_json())["fields"]:
            kind = one["type"] if isinstance(one["type"], str) else str(one["type"]["type"])
            columns[str(one["metadata"].get(_PHYSICAL_NAME, one["name"]))] = (str(one["name"]), kind)
        self._kept = (version, columns)
        return columns

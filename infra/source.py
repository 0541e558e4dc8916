"""A Delta table as far as it can be seen without a JVM: its columns, its properties and its versions, by delta-rs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import TableNotFound

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Column", "SourceTable", "is_catalog_name", "open_source"]

_FEED_PROPERTY = "delta.enableChangeDataFeed"
_CREDENTIALS = re.compile(r"://[^@\s]*@")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """As Delta's log writes it; of a nested type only its kind: ``array``, ``map``, ``struct``."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class SourceTable:
    address: str
    table_id: str
    version: int
    feed_on: bool
    columns: tuple[Column, ...]
    schema_json: str
    handle: Any
    """delta-rs' own object, for what is not read at once."""

    @property
    def schema(self) -> StructType:
        """The columns in Spark's terms, which is what a sink is told. Needs PySpark, but no JVM."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.schema_json))


def is_catalog_name(address: str) -> bool:
    """Whether only Spark's catalog knows where the table is: addresses have a ``/`` in them."""
    return "/" not in address


def open_source(address: str) -> SourceTable:
    """Raises TableNotFound, with what helps, for whatever cannot be read as a Delta table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if is_catalog_name(address):
        raise TableNotFound(
            f"{address} is a catalog name, which cannot be looked up without Spark",
            hint="`deltarelay plan` starts Spark and tells; or name the table by its path",
        )
    shown = _CREDENTIALS.sub("://***@", address)
    if "://" not in address and not Path(address).is_dir():
        raise TableNotFound(f"there is no folder {shown}", hint="correct the path, and check the rights on it")
    try:
        table = DeltaTable(address)
        metadata, schema = table.metadata(), table.schema()
        text = schema.to_json()
        fields = json.loads(text)["fields"]
        return SourceTable(
            address=address,
            table_id=str(metadata.id),
            version=int(table.version()),
            feed_on=metadata.configuration.get(_FEED_PROPERTY, "false").lower() == "true",
            columns=tuple(Column(one["name"], _type(one["type"]), bool(one["nullable"])) for one in fields),
            schema_json=text,
            handle=table,
        )
    except (DeltaError, OSError, ValueError) as error:
        raise TableNotFound(
            f"{shown} cannot be read as a Delta table ({type(error).__name__})",
            hint="name the folder that holds _delta_log, and check the rights on it",
        ) from error


def _type(declared: Any) -> str:
    return declared if isinstance(declared, str) else str(declared["type"])

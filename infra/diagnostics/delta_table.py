"""A Delta table as far as it can be seen without a JVM: its columns, its properties and its versions, by delta-rs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, ConfigError, SourceUnavailable, TableNotFound, unsupported_features
from infra.s3.address import is_s3, normalize_address

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from infra.s3.model import Storage

__all__ = ["Column", "SourceTable", "is_catalog_name", "open_source", "reach", "spark_only"]

_FEED_PROPERTY = "delta.enableChangeDataFeed"
_CREDENTIALS = re.compile(r"://[^@\s/]*:[^@\s]*@")
"""With a password: `abfss://CONTAINER@ACCOUNT` has none."""
_QUERY = re.compile(r"\?\S+")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_MOST = 300
_SILENT = re.compile(r"(?i)error sending request|timed out|connection|status code (5\d\d|429)")
_FORBIDDEN = re.compile(r"(?i)status code 40[13]|access ?denied|forbidden|expired ?token")
_DRESS = re.compile(r"\x1b\[[0-9;]*m|[\s:↳]+")
"""Colours, arrows and line breaks, with which delta-rs draws the causes of an error."""


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
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> StructType:
        """The columns in Spark's terms, which is what a sink is told. Needs PySpark, but no JVM."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.schema_json))


def is_catalog_name(address: str) -> bool:
    """Whether only Spark's catalog knows where the table is: addresses have a ``/`` in them."""
    return "/" not in address


def spark_only(address: str) -> str | None:
    """Why only Spark can look the table up; None: delta-rs can as well."""
    if is_catalog_name(address):
        return "is a catalog name"
    local = address.removeprefix("file://")
    if "://" not in local and _ENCODED.search(str(Path(local).resolve())):
        return "has a percent sign and two hexadecimal digits in its path, which delta-rs decodes in any spelling"
    return None


def open_source(address: str, storage: Storage | None = None) -> SourceTable:
    """Raises TableNotFound, with what helps, for whatever cannot be read as a Delta table.

    ``storage`` says how to reach S3; without it a table there is looked for at AWS, with the usual credentials. What is
    wrong with S3 itself is a ConfigError or SourceUnavailable, within seconds.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if (why := spark_only(address)) is not None:
        raise TableNotFound(
            f"{address} {why}: it cannot be looked up without Spark",
            hint="`deltarelay plan` starts Spark and tells; or name the table by its path",
        )
    shown = _CREDENTIALS.sub("://***@", address)
    if "://" not in address and not Path(address).is_dir():
        raise TableNotFound(f"there is no folder {shown}", hint="correct the path, and check the rights on it")
    address, options = reach(address, storage)
    try:
        table = DeltaTable(address, storage_options=options)
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
            properties=dict(metadata.configuration),
        )
    except (DeltaError, OSError, ValueError) as error:
        raise unreadable(address, error) from error


def unreadable(address: str, error: Exception) -> CdfError:
    """What delta-rs raised while it read a table, in our words; it tells what S3 answered only by its text."""
    shown = _CREDENTIALS.sub("://***@", address)
    said = re.sub(r" +", " ", _DRESS.sub(" ", str(error)))
    if is_s3(address) and _FORBIDDEN.search(said):
        hint = "the bucket can be listed, so see the rights on the objects below it (s3:GetObject)"
        return ConfigError(f"{shown}: these credentials do not have the right to read it", hint=hint)
    if is_s3(address) and isinstance(error, OSError) and _SILENT.search(said):
        return SourceUnavailable(
            f"{shown}: S3 did not answer", hint="try again; see whether the endpoint can be reached"
        )
    if (unknown := unsupported_features(error, shown)) is not None:
        return unknown
    said = _QUERY.sub("?***", _CREDENTIALS.sub("://***@", said)).strip()  # a signature may be in a query
    why = said if len(said) <= _MOST else f"{said[:_MOST]} …"
    return TableNotFound(
        f"{shown} cannot be read as a Delta table ({type(error).__name__}: {why})",
        hint="name the folder that holds _delta_log, and check the rights on it",
    )


def reach(address: str, storage: Storage | None) -> tuple[str, dict[str, str] | None]:
    """Address and options for delta-rs; of S3 once its bucket has answered: delta-rs itself would try for minutes."""
    if not is_s3(address):
        return address, None
    from infra.s3.model import Storage
    from infra.s3.probe import probe_buckets
    from infra.s3.settings import delta_rs_options

    storage, address = storage or Storage(), normalize_address(address)
    probe_buckets(storage, [address])
    return address, delta_rs_options(storage, address)


def _type(declared: Any) -> str:
    return declared if isinstance(declared, str) else str(declared["type"])

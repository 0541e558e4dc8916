"""Reads columns, properties and versions of a Delta table without a JVM, through delta-rs."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.changes.commits import Protocol
from cdf.errors import CdfError, ConfigError, SourceUnavailable, TableNotFound
from cdf.source.commit import from_milliseconds, missing_commits
from cdf.source.table_features import check_features, translate_refusal
from infra.s3.address import is_s3
from infra.s3.delta_rs import prepare_delta_rs
from infra.url_passwords import mask_passwords

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from infra.s3.model import Storage

__all__ = ["Column", "SourceTable", "explain_spark_only", "is_catalog_name", "open_source", "read_commit_time"]

_FEED_PROPERTY = "delta.enableChangeDataFeed"
_QUERY = re.compile(r"\?\S+")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_MAX_LENGTH = 300
_UNAVAILABLE = re.compile(r"(?i)error sending request|timed out|connection|status code:? (5\d\d|429)")
_FORBIDDEN = re.compile(r"(?i)status code:? 40[13]|access ?denied|forbidden|expired ?token")
_DECORATION = re.compile(r"(?:\x1b\[[0-9;]*m|\s|↳)+")
"""Colours, arrows and line breaks in the error messages of delta-rs."""
_OTHER_STORAGE = (
    "; commands without Spark read this store with credentials from the environment, not from spark.conf "
    "(docs/how-to/replicate-from-azure-google-hdfs.md); `deltarelay plan` reads it with Spark"
)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """As in Delta's log; of a nested type only its kind: ``array``, ``map``, ``struct``."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class SourceTable:
    address: str
    table_id: str
    version: int
    feed_on: bool
    columns: tuple[Column, ...]
    schema_json: str
    protocol: Protocol
    handle: Any
    """The object of delta-rs, for later reads."""
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    @property
    def schema(self) -> StructType:
        """The columns as a Spark schema, which sinks take. Needs PySpark, but no JVM."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.schema_json))


def is_catalog_name(address: str) -> bool:
    """Whether only Spark's catalog knows the location of the table: paths and URLs contain a ``/``."""
    return "/" not in address


def explain_spark_only(address: str) -> str | None:
    """Why only Spark can read the table; None: delta-rs can as well."""
    if is_catalog_name(address):
        return "is a catalog name"
    local = address.removeprefix("file://")
    if "://" not in local and _ENCODED.search(str(Path(local).resolve())):
        return "has a percent sign and two hexadecimal digits in its path, which delta-rs always decodes"
    return None


def open_source(address: str, storage: Storage | None = None) -> SourceTable:
    """Open a Delta table. Raises TableNotFound where the address cannot be read as a Delta table.

    ``storage``: how to access S3; by default AWS with the default credentials. Problems of S3 itself raise ConfigError or
    SourceUnavailable within seconds.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if (why := explain_spark_only(address)) is not None:
        raise TableNotFound(
            f"{address} {why}: it cannot be read without Spark",
            hint="check it with `deltarelay plan`, which starts Spark, or name the table by its path",
        )
    shown = mask_passwords(address)
    if "://" not in address and not Path(address).is_dir():
        raise TableNotFound(f"there is no folder {shown}", hint="correct the path, and check its permissions")
    address, options = prepare_delta_rs(address, storage)
    try:
        table = DeltaTable(address, storage_options=options)
        metadata, schema, protocol = table.metadata(), table.schema(), _read_protocol(table)
        check_features(protocol, metadata.configuration, shown)
        text = schema.to_json()
        fields = json.loads(text)["fields"]
        return SourceTable(
            address=address,
            table_id=str(metadata.id),
            version=int(table.version()),
            feed_on=metadata.configuration.get(_FEED_PROPERTY, "false").lower() == "true",
            columns=tuple(Column(one["name"], _type(one["type"]), bool(one["nullable"])) for one in fields),
            schema_json=text,
            protocol=protocol,
            handle=table,
            properties=dict(metadata.configuration),
            storage_options=options,
        )
    except (DeltaError, OSError, ValueError) as error:
        raise translate_read_error(address, error) from error


def read_commit_time(table: SourceTable, version: int) -> dt.datetime | None:
    """The time of a commit, from its file alone: a history of many commits takes seconds. None: the file does not say it.
    Raises VersionsExpired where the file is gone."""
    import pyarrow.fs as pa_fs
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler

    try:
        handler: Any = DeltaStorageHandler(table.handle.table_uri, table.storage_options)
        with pa_fs.PyFileSystem(handler).open_input_file(f"_delta_log/{version:020}.json") as stream:
            lines = stream.read().split(b"\n")
        infos = (json.loads(line).get("commitInfo") for line in lines if b'"commitInfo"' in line)
        info: dict[str, Any] = next((one for one in infos if one is not None), {})
        time = info.get("inCommitTimestamp", info.get("timestamp"))
        return None if time is None else from_milliseconds(int(time))
    except FileNotFoundError as error:
        raise missing_commits(mask_passwords(table.address), [version]) from error
    except (DeltaError, OSError, ValueError) as error:
        raise translate_read_error(table.address, error) from error


def translate_read_error(address: str, error: Exception) -> CdfError:
    """An error of delta-rs while reading a table as a deltarelay error. Answers of S3 are recognised by their text."""
    shown = mask_passwords(address)
    # a signature may be in a query; both are masked before anything else is changed in the text
    said = _DECORATION.sub(" ", _QUERY.sub("?***", mask_passwords(str(error)))).strip()
    if is_s3(address) and _FORBIDDEN.search(said):
        hint = "the bucket can be listed; check the permission to read its objects (s3:GetObject)"
        return ConfigError(f"{shown}: permission denied for these credentials", hint=hint)
    if is_s3(address) and isinstance(error, OSError) and _UNAVAILABLE.search(said):
        return SourceUnavailable(f"{shown}: S3 did not answer", hint="try again; check the connection to the endpoint")
    if (unsupported := translate_refusal(error, shown)) is not None:
        return unsupported
    # delta-rs names the cause last
    why = said if len(said) <= _MAX_LENGTH else f"{said[: _MAX_LENGTH // 3]} … {said[-2 * _MAX_LENGTH // 3 :]}"
    hint = "name the folder that contains _delta_log, and check its permissions"
    if "://" in address and not is_s3(address) and not address.startswith("file:"):
        hint += _OTHER_STORAGE
    return TableNotFound(f"{shown} cannot be read as a Delta table ({type(error).__name__}: {why})", hint=hint)


def _read_protocol(table: Any) -> Protocol:
    found = table.protocol()
    return Protocol(
        found.min_reader_version,
        found.min_writer_version,
        tuple(found.reader_features or ()),
        tuple(found.writer_features or ()),
    )


def _type(declared: Any) -> str:
    return declared if isinstance(declared, str) else str(declared["type"])

"""One pipeline in the configuration: connection, source, sink target, window limits; and the Spark settings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    SerializeAsAny,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from cdf.changes.commits import Limits
from cdf.pipeline.brakes import MIN_ROWS, Brakes
from cdf.result import plain
from infra.base_model import Model
from infra.config.file.references import Expanded
from infra.config.table_patterns import check_pattern
from infra.config.values import Start, check_columns, folder_of, parse_count, parse_size, parse_start, resolve_table

__all__ = [
    "BrakeLimits",
    "Connection",
    "Name",
    "Pipeline",
    "SinkTarget",
    "Spark",
    "TableOverrides",
    "TableSource",
    "WindowLimits",
]

_SECRET_SETTING = re.compile(r"(?i)secret|passw|token|credential|access[._-]?key|account[._-]?key|private[._-]?key")
_DEFAULTS, _BRAKES = Limits(), Brakes()


def _resolve_table(value: str, info: ValidationInfo) -> str:
    return resolve_table(value, folder_of(info))


def _parse_setting(value: Any) -> str | SecretStr:
    if isinstance(value, (str, SecretStr)):
        return SecretStr(str(value)) if isinstance(value, Expanded) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise ValueError("must be a single value; write the full name of the setting as one key: spark.driver.memory: 2g")


def _mark_secrets(conf: dict[str, str | SecretStr]) -> dict[str, str | SecretStr]:
    return {
        name: SecretStr(value) if isinstance(value, str) and _SECRET_SETTING.search(name) else value
        for name, value in conf.items()
    }


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
_Count = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(ge=1),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^[1-9][0-9]*$|\$\{"}]}
    ),
]
_Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(ge=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgGtT][iI]?)?[bB]?\s*$|\$\{"},
            ]
        }
    ),
]
_Start = Annotated[
    Start,
    PlainValidator(parse_start),
    PlainSerializer(plain, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["snapshot", "earliest"]},
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^[0-9]{4}-.*(Z|[-+][0-9]{2}:?[0-9]{2})$|^[0-9]+$|\$\{"},
            ]
        }
    ),
]
_Setting = Annotated[
    str | SecretStr,
    PlainValidator(_parse_setting),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]


class Connection(Model):
    """How to reach a target; ``settings`` is the model of its kind."""

    kind: str = Field(title="Kind", description="The kind of sink this connection belongs to.")
    settings: SerializeAsAny[BaseModel]


class SinkTarget(Model):
    """Where a pipeline writes; ``options`` is the model of the connection's kind."""

    connection: str = Field(title="Connection", description="The name of an entry under `connections`.")
    options: SerializeAsAny[BaseModel]


class WindowLimits(Model):
    """How much is applied in one step. A single commit above the limit is applied alone."""

    max_commits: _Count = Field(
        default=_DEFAULTS.max_commits, title="Commits", description="Maximum number of commits in a window."
    )
    max_bytes: _Size = Field(
        default=_DEFAULTS.max_bytes,
        title="Bytes",
        description="Maximum bytes of change files in a window: a number, or text such as 256MB (10^6) or 64 MiB (2^20).",
    )

    def limits(self) -> Limits:
        return Limits(max_commits=self.max_commits, max_bytes=self.max_bytes)


class BrakeLimits(Model):
    """The most that one window may do to its target. A window above a limit is stopped until it is approved."""

    max_delete_rows: Annotated[int, Field(ge=0)] | None = Field(
        default=_BRAKES.max_delete_rows,
        title="Deleted rows",
        description="Maximum number of rows that a window may delete; null: no limit.",
    )
    max_delete_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=_BRAKES.max_delete_share,
        title="Share of deleted rows",
        description=f"Maximum share of the target's rows that a window may delete, if the target has {MIN_ROWS:,} rows or "
        "more; null: no limit.",
    )
    max_change_share: Annotated[float, Field(ge=0)] | None = Field(
        default=_BRAKES.max_change_share,
        title="Share of changed rows",
        description="Maximum number of inserts, updates and deletes of a window, as a share of the target's rows, if the "
        f"target has {MIN_ROWS:,} rows or more; null: no limit.",
    )

    def brakes(self) -> Brakes:
        return Brakes(self.max_delete_rows, self.max_delete_share, self.max_change_share)


def _check_key(value: Any) -> Any:
    if value in (None, [], ()):
        raise ValueError("has no columns: name those that identify a row, or move the table to `exclude`")
    return value


def _keep_empty_keys(value: Any) -> Any:
    """``key:`` without a value is a key that is still unknown, not the key of the other tables."""
    if not isinstance(value, dict):
        return value
    return {
        table: {**one, "key": one["key"] or []} if isinstance(one, dict) and "key" in one else one
        for table, one in value.items()
    }


class TableOverrides(Model):
    """Settings of one table of `tables` that differ from those of the other tables."""

    key: Annotated[tuple[str, ...], BeforeValidator(_check_key), AfterValidator(check_columns)] | None = Field(
        default=None, title="Key", description="The columns that identify a row of this table."
    )
    start: _Start | None = Field(
        default=None, title="Start", description="Where to begin while the sink of this table is empty."
    )
    sink: dict[str, Any] = Field(
        default_factory=dict,
        title="Sink",
        description="Options of the sink, except `connection`; they replace those of the pipeline one by one.",
    )
    window: WindowLimits | None = Field(
        default=None, title="Window", description="Limits that replace those of the pipeline one by one."
    )
    brakes: BrakeLimits | None = Field(
        default=None, title="Brakes", description="Brakes that replace those of the pipeline one by one."
    )


def _require_table_or_tables(schema: dict[str, Any]) -> None:
    """In the JSON schema: either ``table`` or ``tables``."""
    schema["properties"]["tables"] = {
        key: value for key, value in schema["properties"]["tables"].items() if key not in ("anyOf", "default")
    } | {"type": "string"}
    schema["required"].remove("table")
    schema["oneOf"] = [{"required": ["table"]}, {"required": ["tables"]}]


class TableSource(Model):
    """The Delta table that a pipeline reads, or a pattern: then each matching table becomes a pipeline."""

    model_config = ConfigDict(json_schema_extra=_require_table_or_tables)

    table: Annotated[str, AfterValidator(_resolve_table)] = Field(
        title="Table",
        description="Path, URL or catalog name of the Delta table. A relative path starts at the folder of this file.",
    )
    tables: Annotated[str, AfterValidator(check_pattern)] | None = Field(
        default=None,
        title="Tables",
        description="Instead of `table`: a folder with wildcards in its last part, such as /lake/sales/* or "
        "s3a://lake/sales/*, or a catalog schema: sales.*. Each matching Delta table becomes a separate pipeline "
        "PIPELINE.TABLE; {name} in the sink's options is replaced by the name of its folder, or of the table.",
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        title="Exclude",
        description="With `tables`: names of tables to leave out, or patterns of names such as tmp_*.",
    )
    overrides: Annotated[dict[str, TableOverrides], BeforeValidator(_keep_empty_keys)] = Field(
        default_factory=dict,
        title="Overrides",
        description="With `tables`: settings of single tables, by the name of their folder. Each name must be a table that "
        "`tables` matches and `exclude` does not.",
    )
    key: Annotated[tuple[str, ...], AfterValidator(check_columns)] = Field(
        min_length=1, title="Key", description="The columns that identify a row; never null, unique together."
    )
    start: _Start = Field(
        default="snapshot",
        title="Start",
        description="Where to begin while the sink is empty: `snapshot` (the whole table now, then its changes), "
        "`earliest` (the oldest change that is still available), a version, or a timestamp with its time zone.",
    )

    @model_validator(mode="before")
    @classmethod
    def _use_pattern_as_table(cls, data: Any) -> Any:
        """Until the matching tables are known, the pattern is the table: it names their folder or bucket."""
        if isinstance(data, dict) and data.get("tables") is not None and data.get("table") is None:
            return {**data, "table": data["tables"]}
        return data


class Pipeline(Model):
    """One table replicated to one sink."""

    source: TableSource = Field(title="Source", description="The Delta table that the pipeline reads.")
    sink: SinkTarget = Field(title="Sink", description="Where the pipeline writes.")
    window: WindowLimits = Field(default=WindowLimits(), title="Window", description="How much is applied in one step.")
    brakes: BrakeLimits = Field(
        default=BrakeLimits(), title="Brakes", description="Which windows are stopped until a user approves them."
    )


class Spark(Model):
    """Additional settings for the Spark session."""

    master: str | None = Field(default=None, title="Master", description="Spark master URL, such as local[*].")
    remote: SecretStr | None = Field(
        default=None,
        title="Remote",
        description="Address of a Spark Connect server instead of a master, such as sc://host:15002. The server's own "
        "settings decide how it reads storage; `conf` sets settings of its session.",
    )
    conf: Annotated[dict[str, _Setting], AfterValidator(_mark_secrets)] = Field(
        default_factory=dict, title="Settings", description="Spark settings by their full name."
    )

    @model_validator(mode="after")
    def _check_one_place(self) -> Self:
        if self.master is not None and self.remote is not None:
            raise ValueError("set either master or remote: a Spark Connect server has its own master")
        return self

    def settings(self) -> dict[str, str]:
        """``conf`` with its secrets in plain text, for the builder of the session."""
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in self.conf.items()
        }

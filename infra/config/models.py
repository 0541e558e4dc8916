"""The configuration as frozen models. ``infra.config.load`` fills them and says where each mistake stands."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

from cdf.changes.window import Limits
from cdf.errors import ConfigError
from cdf.result import plain
from cdf.sink.contract import Sink
from connectors.registry import AsksAround, NamesTarget, sink_kind
from infra.config.base_model import Model
from infra.config.erasure_models import Erasure
from infra.config.table_patterns import check_pattern
from infra.config.values import Start, parse_count, parse_size, parse_start, resolve_path, resolve_table
from infra.s3.model import Storage

if TYPE_CHECKING:
    from audit.encryption.encrypt import Sealing
    from audit.encryption.key_registry import Registry
    from audit.encryption.root_keys import Root
    from audit.erasure.scan.files import Files

__all__ = [
    "Connection",
    "Expanded",
    "Name",
    "Pipeline",
    "Project",
    "SinkTarget",
    "Spark",
    "TableSource",
    "WindowLimits",
]

_SECRET_SETTING = re.compile(r"(?i)secret|passw|token|credential|access[._-]?key|account[._-]?key|private[._-]?key")
_DEFAULTS = Limits()
IO_ENCRYPTION = "spark.io.encryption.enabled"


class Expanded(str):
    """Text that came in part from the environment or a secret file."""


def _folder(info: ValidationInfo) -> Path | None:
    return info.context.get("folder") if isinstance(info.context, dict) else None


def _version(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value == 1:
        return value
    raise ValueError("is not supported; this release reads version 1: set `version: 1`")


def _table(value: str, info: ValidationInfo) -> str:
    return resolve_table(value, _folder(info))


def _jar(value: Any, info: ValidationInfo) -> Path:
    if not isinstance(value, (str, Path)):
        raise ValueError("must be the path of a jar")
    if "://" in str(value):
        raise ValueError("must be a local path; download the jar first")
    return resolve_path(value, _folder(info))


def _key(value: tuple[str, ...]) -> tuple[str, ...]:
    if not all(column.strip() for column in value):
        raise ValueError("has an empty column name")
    if len({column.lower() for column in value}) < len(value):
        raise ValueError("names a column twice")
    return value


def _setting(value: Any) -> str | SecretStr:
    if isinstance(value, (str, SecretStr)):
        return SecretStr(str(value)) if isinstance(value, Expanded) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise ValueError("must be a single value; write the setting's whole name as one key: spark.driver.memory: 2g")


def _hide(conf: dict[str, str | SecretStr]) -> dict[str, str | SecretStr]:
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
    PlainValidator(_setting),
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


def _one_or_many(schema: dict[str, Any]) -> None:
    """The JSON schema's side of it: ``table``, or else ``tables``."""
    schema["properties"]["tables"] = {
        key: value for key, value in schema["properties"]["tables"].items() if key not in ("anyOf", "default")
    } | {"type": "string"}
    schema["required"].remove("table")
    schema["oneOf"] = [{"required": ["table"]}, {"required": ["tables"]}]


class TableSource(Model):
    """The Delta table that a pipeline reads, or the pattern that makes a pipeline of each table that it meets."""

    model_config = ConfigDict(json_schema_extra=_one_or_many)

    table: Annotated[str, AfterValidator(_table)] = Field(
        title="Table",
        description="Path, URL or catalog name of the Delta table. A relative path starts at the folder of this file.",
    )
    tables: Annotated[str, AfterValidator(check_pattern)] | None = Field(
        default=None,
        title="Tables",
        description="In place of `table`: a folder with wildcards in its last part, such as /lake/sales/* or "
        "s3a://lake/sales/*. Each Delta table in it becomes a pipeline of its own, PIPELINE.FOLDER, and {name} in the "
        "sink's options is the name of its folder.",
    )
    key: Annotated[tuple[str, ...], AfterValidator(_key)] = Field(
        min_length=1, title="Key", description="The columns that identify a row; never null, never twice."
    )
    start: _Start = Field(
        default="snapshot",
        title="Start",
        description="Where to begin while the sink is empty: `snapshot` (the whole table now, then its changes), "
        "`earliest` (the oldest change still there), a version, or a timestamp with its zone.",
    )

    @model_validator(mode="before")
    @classmethod
    def _pattern_is_address(cls, data: Any) -> Any:
        """Until it is known which tables it meets, the pattern stands where they will: it names their folder or bucket."""
        if isinstance(data, dict) and data.get("tables") is not None and data.get("table") is None:
            return {**data, "table": data["tables"]}
        return data


class WindowLimits(Model):
    """How much is applied in one step. A single commit above the limit is a step of its own."""

    max_commits: _Count = Field(default=_DEFAULTS.max_commits, title="Commits", description="Most commits in a window.")
    max_bytes: _Size = Field(
        default=_DEFAULTS.max_bytes,
        title="Bytes",
        description="Most bytes of change files in a window: a number, or text such as 256MB (10^6) or 64 MiB (2^20).",
    )

    def limits(self) -> Limits:
        return Limits(max_commits=self.max_commits, max_bytes=self.max_bytes)


class Pipeline(Model):
    """One table carried to one sink."""

    source: TableSource = Field(title="Source", description="The Delta table that the pipeline reads.")
    sink: SinkTarget = Field(title="Sink", description="Where the pipeline writes.")
    window: WindowLimits = Field(default=WindowLimits(), title="Window", description="How much is applied in one step.")


class Spark(Model):
    """Extra settings for the Spark session."""

    master: str | None = Field(default=None, title="Master", description="Spark master URL, such as local[*].")
    conf: Annotated[dict[str, _Setting], AfterValidator(_hide)] = Field(
        default_factory=dict, title="Settings", description="Spark settings by their full name."
    )

    def settings(self) -> dict[str, str]:
        """``conf`` in clear, for the session's builder."""
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in self.conf.items()
        }


class Project(Model):
    """Everything that a ``deltarelay.yaml`` says."""

    version: Annotated[int, BeforeValidator(_version), WithJsonSchema({"const": 1})] = Field(
        title="Version", description="The version of this file's format."
    )
    connections: dict[Name, Connection] = Field(
        min_length=1, title="Connections", description="The targets, by a name of your choice."
    )
    pipelines: dict[Name, Pipeline] = Field(
        min_length=1, title="Pipelines", description="The pipelines, by a name of your choice."
    )
    spark: Spark = Field(default=Spark(), title="Spark", description="Extra settings for the Spark session.")
    storage: Storage = Field(default=Storage(), title="Storage", description="Tables on S3, and who may write to them.")
    erasure: Erasure | None = Field(
        default=None,
        title="Erasure",
        description="Whose data are where, and what may not go yet: for `deltarelay erase`.",
    )
    jars: tuple[Annotated[Path, PlainValidator(_jar), WithJsonSchema({"type": "string", "minLength": 1})], ...] = Field(
        default=(),
        title="Jars",
        description="Local jars, or folders of jars, to use instead of fetching them. Relative paths start at this "
        "file's folder.",
    )

    def named(self, name: str) -> list[str]:
        """The pipelines that a name means: one, or all that were made of the `tables` of the pipeline of that name."""
        if not (many := self._members(name)):
            self.pipeline(name)  # for its error
        return many or [name]

    def _members(self, name: str) -> list[str]:
        return [one for one, made in self.pipelines.items() if made.source.tables and one.startswith(f"{name}.")]

    def pipeline(self, name: str) -> Pipeline:
        if name in self.pipelines:
            return self.pipelines[name]
        if many := self._members(name):
            raise ConfigError(f"`{name}` stands for {len(many)} tables", hint=f"name one of them: {_some(many)}")
        near = difflib.get_close_matches(name, self.pipelines, n=1)
        raise ConfigError(
            f"no pipeline `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""),
            hint=f"pipelines in the configuration: {_some(list(self.pipelines))}",
        )

    def erasure_dsn(self) -> str:
        """Of the database that keeps requests, steps and certificates."""
        assert self.erasure is not None
        settings: Any = self.connections[self.erasure.state.connection].settings
        return str(settings.dsn.get_secret_value())

    def keys_dsn(self) -> str:
        """Of the database that keeps the keys of persons."""
        assert self.erasure is not None
        assert self.erasure.key_registry is not None
        settings: Any = self.connections[self.erasure.key_registry.connection].settings
        return str(settings.dsn.get_secret_value())

    def key_registry(self) -> Registry:
        """Opened as ``erasure.keys`` says; asks nothing yet."""
        from audit.encryption.key_registry import Registry

        assert self.erasure is not None
        settings = self.erasure.key_registry
        assert settings is not None
        root = self.root_key(settings.root_key.get_secret_value())
        return Registry(self.keys_dsn(), root, schema=settings.schema_name)

    def spark_settings(self) -> dict[str, str]:
        """Of the configuration; keys of persons stand in plain text on no disk of Spark's, unless it says so itself."""
        sealed = self.erasure is not None and self.erasure.key_registry is not None
        return ({IO_ENCRYPTION: "true"} if sealed else {}) | dict(self.spark.settings())

    def root_key(self, text: str) -> Root:
        """The key itself, or ``aws_kms:ARN``."""
        from audit.encryption.root_keys import open_root
        from infra.s3 import clients as aws

        return open_root(text, lambda region: aws.kms(self.storage, region))

    def files(self, address: str) -> Files:
        """Everything below the address of a table, on a disk or in a bucket. Raises OSError for another store."""
        from audit.erasure.scan.s3_files import files_at

        among = _Among(self)
        return files_at(address, among.s3_client, among.delta_rs_options)

    def targets(self) -> dict[str, str]:
        """By pipeline what it writes to, in words."""
        found = {}
        for name, one in self.pipelines.items():
            name_of = self.connections[one.sink.connection].kind
            kind = sink_kind(name_of)
            place = f"{kind.target(one.sink.options)} of " if isinstance(kind, NamesTarget) else ""
            found[name] = f"{place}{one.sink.connection} ({name_of})"
        return found

    def build_sink(self, name: str) -> Sink:
        """Make the sink of a pipeline; opens no connection."""
        target = self.pipeline(name).sink
        connection = self.connections[target.connection]
        kind = sink_kind(connection.kind)
        if isinstance(kind, AsksAround):
            return kind.build_among(connection.settings, target.options, pipeline=name, among=_Among(self))
        return kind.build(connection.settings, target.options, pipeline=name)


class _Among:
    """``connectors.registry.Surroundings``."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def connection(self, name: str, kind: str) -> Any:
        found = self._project.connections.get(name)
        if found is None or found.kind != kind:
            known = [one for one, connection in self._project.connections.items() if connection.kind == kind]
            raise ConfigError(
                f"there is no connection `{name}` of kind {kind}", hint=f"those of that kind: {_some(known) or 'none'}"
            )
        return found.settings

    def s3_client(self, bucket: str) -> Any:
        from infra.s3 import clients as aws

        return aws.s3(self._project.storage.s3.bucket(bucket))

    def delta_rs_options(self, address: str) -> Mapping[str, str] | None:
        from infra.diagnostics.delta_table import reach

        return reach(address, self._project.storage)[1]

    def sealing(self, pipeline: str) -> Sealing | None:
        erasure, table = self._project.erasure, self._project.pipeline(pipeline).source.table
        people = erasure.graph().encrypted_people(table) if erasure is not None else ()
        if not people:
            return None
        from audit.encryption.encrypt import Sealing

        # Opened once: what is above the keys is unwrapped for each opening, and AWS KMS asked each time
        return Sealing(people, functools.cache(self._project.key_registry))

    def key_registry(self) -> Callable[[], Registry] | None:
        erasure = self._project.erasure
        return None if erasure is None or erasure.key_registry is None else self._project.key_registry


def _some(names: list[str]) -> str:
    most = 20
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

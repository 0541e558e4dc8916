"""``Project``: the whole configuration, and what is built from it."""

from __future__ import annotations

import datetime as dt
import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, PrivateAttr, ValidationInfo, WithJsonSchema

from cdf.errors import ConfigError
from cdf.listing import list_some
from cdf.result import plain
from cdf.sink import Sink
from connectors.registry import get_sink_kind
from connectors.sink_kind import ContextualSinkKind, TargetNaming
from infra.base_model import Model
from infra.config.erasure_models import Erasure
from infra.config.file.former_names import FormerName
from infra.config.monitoring_models import Lineage, Metrics, Notify
from infra.config.pipeline_models import Connection, Name, Pipeline, SinkTarget, Spark, TableSource, WindowLimits
from infra.config.values import folder_of, resolve_path
from infra.s3.address import is_s3
from infra.s3.model import Storage

if TYPE_CHECKING:
    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import Registry
    from audit.encryption.root_keys import Root
    from audit.erasure.scan.files import Files

__all__ = [
    "MASK",
    "Connection",
    "Pipeline",
    "Project",
    "SinkTarget",
    "Spark",
    "TableSource",
    "WindowLimits",
    "describe",
    "storage_of",
]

MASK = "***"
_BLOCKS = ("erasure", "lineage", "notify", "metrics")
"""Left out where the file does not have them."""
IO_ENCRYPTION = "spark.io.encryption.enabled"


def _check_version(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value == 1:
        return value
    raise ValueError("is not supported; this release reads version 1: set `version: 1`")


def _resolve_jar(value: Any, info: ValidationInfo) -> Path:
    if not isinstance(value, (str, Path)):
        raise ValueError("must be the path of a jar")
    if "://" in str(value):
        raise ValueError("must be a local path; download the jar first")
    return resolve_path(value, folder_of(info))


class Project(Model):
    """The content of a ``deltarelay.yaml``."""

    version: Annotated[int, BeforeValidator(_check_version), WithJsonSchema({"const": 1})] = Field(
        title="Version", description="The version of this file's format."
    )
    connections: dict[Name, Connection] = Field(
        min_length=1, title="Connections", description="The targets, by a name of your choice."
    )
    pipelines: dict[Name, Pipeline] = Field(
        min_length=1, title="Pipelines", description="The pipelines, by a name of your choice."
    )
    spark: Spark = Field(default=Spark(), title="Spark", description="Additional settings for the Spark session.")
    storage: Storage = Field(
        default=Storage(),
        title="Storage",
        description="How to access tables on S3, and how concurrent writers are coordinated.",
    )
    erasure: Erasure | None = Field(
        default=None,
        title="Erasure",
        description="Which tables hold personal data and what must be retained, for `deltarelay erase`.",
    )
    lineage: Lineage | None = Field(
        default=None,
        title="Lineage",
        description="Where `run`, `verify` and `erase run` send OpenLineage events. Needs the extra `lineage`.",
    )
    notify: Notify | None = Field(
        default=None,
        title="Notify",
        description="Where `run` and `verify` send a message about an incident. Needs the extra `notify`.",
    )
    metrics: Metrics | None = Field(
        default=None, title="Metrics", description="Where `run` stores its metrics, and where it sends them."
    )
    jars: tuple[
        Annotated[Path, PlainValidator(_resolve_jar), WithJsonSchema({"type": "string", "minLength": 1})], ...
    ] = Field(
        default=(),
        title="Jars",
        description="Local jars, or folders of jars, to use instead of fetching them. Relative paths start at the folder "
        "of this file.",
    )
    _former_names: tuple[FormerName, ...] = PrivateAttr(default=())

    @property
    def former_names(self) -> tuple[FormerName, ...]:
        """The settings that the file writes by their former names."""
        return self._former_names

    def with_former_names(self, names: Sequence[FormerName]) -> Self:
        self._former_names = tuple(names)
        return self

    def names_of(self, name: str) -> list[str]:
        """The pipelines that a name selects: itself, or all pipelines of its `tables`."""
        if not (members := self._list_members(name)):
            self.pipeline(name)  # raises where there is no such pipeline
        return members or [name]

    def _list_members(self, name: str) -> list[str]:
        return [
            member
            for member, pipeline in self.pipelines.items()
            if pipeline.source.tables and member.startswith(f"{name}.")
        ]

    def pipeline(self, name: str) -> Pipeline:
        if name in self.pipelines:
            return self.pipelines[name]
        if members := self._list_members(name):
            message = f"`{name}` selects {len(members)} tables"
            raise ConfigError(message, hint=f"name one of them: {list_some(members, 20)}")
        near = difflib.get_close_matches(name, self.pipelines, n=1)
        raise ConfigError(
            f"no pipeline `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""),
            hint=f"pipelines in the configuration: {list_some(list(self.pipelines), 20)}",
        )

    def uses_s3(self) -> bool:
        """Whether a source or a sink folder is on S3, or the file has a ``storage`` block."""
        sources = [one.source.table for one in self.pipelines.values()]
        folders = [getattr(one.settings, "path", None) for one in self.connections.values()]
        return "storage" in self.model_fields_set or any(is_s3(str(one)) for one in (*sources, *folders))

    def erasure_dsn(self) -> str:
        """The connection string of the database with requests, steps and certificates."""
        assert self.erasure is not None
        settings: Any = self.connections[self.erasure.state.connection].settings
        return str(settings.dsn.get_secret_value())

    def keys_dsn(self) -> str:
        """The connection string of the database with the keys of persons."""
        assert self.erasure is not None
        assert self.erasure.key_registry is not None
        settings: Any = self.connections[self.erasure.key_registry.connection].settings
        return str(settings.dsn.get_secret_value())

    def key_registry(self) -> Registry:
        """The registry of ``erasure.keys``; connects to nothing yet."""
        from audit.encryption.key_registry import Registry

        assert self.erasure is not None
        settings = self.erasure.key_registry
        assert settings is not None
        root = self.root_key(settings.root_key.get_secret_value())
        return Registry(self.keys_dsn(), root, schema=settings.schema_name)

    def spark_settings(self) -> dict[str, str]:
        """The settings of ``spark.conf``. With a key registry Spark encrypts its local files, unless ``conf`` disables it:
        tasks handle keys of persons in plain text."""
        has_keys = self.erasure is not None and self.erasure.key_registry is not None
        return ({IO_ENCRYPTION: "true"} if has_keys else {}) | dict(self.spark.settings())

    def root_key(self, text: str) -> Root:
        """``text``: the key itself, or ``aws_kms:ARN``."""
        from audit.encryption.root_keys import open_root
        from infra.s3.clients import connect_kms

        return open_root(text, lambda region: connect_kms(self.storage, region))

    def files(self, address: str) -> Files:
        """All files below the address of a table, on a disk or in a bucket. Raises OSError for other stores."""
        from audit.erasure.scan.s3_files import files_at

        context = _ConfigurationContext(self)
        return files_at(address, context.create_s3_client, context.build_delta_rs_options)

    def targets(self) -> dict[str, str]:
        """For each pipeline a description of its target, such as ``public.customers of warehouse (postgres)``."""
        described = {}
        for name, one in self.pipelines.items():
            kind_name = self.connections[one.sink.connection].kind
            kind = get_sink_kind(kind_name)
            place = f"{kind.target(one.sink.options)} of " if isinstance(kind, TargetNaming) else ""
            described[name] = f"{place}{one.sink.connection} ({kind_name})"
        return described

    def build_sink(self, name: str) -> Sink:
        """The sink of a pipeline; opens no connection."""
        target = self.pipeline(name).sink
        connection = self.connections[target.connection]
        kind = get_sink_kind(connection.kind)
        if isinstance(kind, ContextualSinkKind):
            return kind.build_in_context(
                connection.settings, target.options, pipeline=name, context=_ConfigurationContext(self)
            )
        return kind.build(connection.settings, target.options, pipeline=name)


class _ConfigurationContext:
    """``connectors.sink_kind.ConfigurationContext``."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def get_connection(self, name: str, kind: str) -> Any:
        entry = self._project.connections.get(name)
        if entry is None or entry.kind != kind:
            known = [one for one, connection in self._project.connections.items() if connection.kind == kind]
            message = f"there is no connection `{name}` of kind {kind}"
            raise ConfigError(message, hint=f"connections of that kind: {list_some(known, 20) or 'none'}")
        return entry.settings

    def create_s3_client(self, bucket: str) -> Any:
        from infra.s3.clients import connect_s3

        return connect_s3(self._project.storage.s3.bucket(bucket))

    def build_delta_rs_options(self, address: str) -> Mapping[str, str] | None:
        from infra.s3.delta_rs import prepare_delta_rs

        return prepare_delta_rs(address, self._project.storage)[1]

    def build_encryption(self, pipeline: str) -> ColumnEncryption | None:
        erasure, table = self._project.erasure, self._project.pipeline(pipeline).source.table
        people = erasure.graph().encrypted_people(table) if erasure is not None else ()
        if not people:
            return None
        from audit.encryption.encrypt import ColumnEncryption

        # Opened once: each opening unwraps the keys above, with a call to AWS KMS
        return ColumnEncryption(people, functools.cache(self._project.key_registry))

    def get_key_registry(self) -> Callable[[], Registry] | None:
        erasure = self._project.erasure
        return None if erasure is None or erasure.key_registry is None else self._project.key_registry


def storage_of(project: Project | None, tables: Sequence[str] = ()) -> Storage | None:
    """The settings for S3, or None where neither the project nor ``tables`` are on S3: no jar or setting is needed."""
    if project is not None and project.uses_s3():
        return project.storage
    is_needed = any(is_s3(table) for table in tables)
    return (project.storage if project is not None else Storage()) if is_needed else None


def describe(project: Project) -> dict[str, Any]:
    """The effective configuration in the layout of the file, with every secret as ``***``."""
    connections = {
        name: {"kind": connection.kind, **_to_plain(connection.settings)}
        for name, connection in project.connections.items()
    }
    pipelines = {
        name: {
            "source": _describe_source(pipeline.source),
            "sink": {"connection": pipeline.sink.connection, **_to_plain(pipeline.sink.options)},
            "window": _to_plain(pipeline.window),
            "brakes": _to_plain(pipeline.brakes),
        }
        for name, pipeline in project.pipelines.items()
    }
    return {
        "version": project.version,
        "storage": _to_plain(project.storage),
        "connections": connections,
        "pipelines": pipelines,
        "spark": _to_plain(project.spark),
        "jars": [str(jar) for jar in project.jars],
        **{name: _to_plain(block) for name in _BLOCKS if (block := getattr(project, name)) is not None},
    }


def _describe_source(source: TableSource) -> dict[str, Any]:
    """Without ``exclude`` and ``overrides`` where they are empty, as in every pipeline of one table."""
    described: dict[str, Any] = _to_plain(source)
    return {key: value for key, value in described.items() if key not in ("exclude", "overrides") or value}


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {field.alias or name: _to_plain(getattr(value, name)) for name, field in fields.items()}
    if hasattr(value, "get_secret_value"):
        return MASK
    if isinstance(value, Mapping):
        return {str(key): _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_to_plain(inner) for inner in value]
    # `plain` formats a datetime
    return str(value) if isinstance(value, Path) or type(value) is dt.date else plain(value)

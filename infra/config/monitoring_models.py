"""The blocks of the configuration for what operators see: `lineage`, `metrics` and `notify`."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from infra.base_model import Model
from infra.config.limits import Limits, MaxDeadLetters, MaxOverdueErasures, MaxUnanchored, MinFeedDays
from infra.config.values import folder_of, resolve_path

__all__ = ["FileTransport", "HttpTransport", "KafkaTransport", "Lineage", "Metrics", "Notify", "Otlp"]


def _resolve_file(value: Any, info: ValidationInfo) -> Path:
    if not isinstance(value, (str, Path)) or "://" in str(value):
        raise ValueError("must be the path of a local file")
    return resolve_path(value, folder_of(info))


def _check_url(value: str) -> str:
    if re.fullmatch(r"https?://[^/@\s]+(/\S*)?", value) is None:
        raise ValueError("must be an address such as https://HOST:PORT, without a user name or a password")
    return value


class FileTransport(Model):
    """Events are appended to a file, one JSON document per line."""

    kind: Literal["file"] = Field(title="Kind", description="A file of this machine.")
    path: Annotated[Path, PlainValidator(_resolve_file), WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        title="File",
        description="It is created if it does not exist. A relative path starts at the folder of this file.",
    )


class HttpTransport(Model):
    """Events are sent to a server of the OpenLineage API, such as Marquez."""

    kind: Literal["http"] = Field(title="Kind", description="A server of the OpenLineage API.")
    url: Annotated[str, AfterValidator(_check_url)] = Field(
        title="Address", description="`https://HOST:PORT`, without a user name or a password."
    )
    endpoint: str = Field(default="api/v1/lineage", title="Path", description="The path of the API at that address.")
    api_key: SecretStr | None = Field(
        default=None,
        title="API key",
        description="Sent as a bearer token. Do not write it into the file: ${LINEAGE_KEY} reads it from the environment.",
    )


class KafkaTransport(Model):
    """Events are written to a Kafka topic."""

    kind: Literal["kafka"] = Field(title="Kind", description="A Kafka topic.")
    connection: str = Field(title="Connection", description="The name of a connection of kind kafka.")
    topic: Annotated[str, Field(min_length=1)] = Field(
        title="Topic", description="It must exist, or the brokers must create topics by themselves."
    )


class Lineage(Model):
    """OpenLineage events: which tables were read and written, by which pipeline, in which versions."""

    namespace: Annotated[str, Field(min_length=1)] = Field(
        default="deltarelay", title="Namespace", description="The namespace of the jobs, such as the environment."
    )
    transport: Annotated[FileTransport | HttpTransport | KafkaTransport, Field(discriminator="kind")] = Field(
        title="Transport", description="Where the events go."
    )


_Kind = Literal[
    "failed",
    "unreachable",
    "stuck",
    "stopped_by_brake",
    "lagging",
    "feed_expiring",
    "stale",
    "dead_letters",
    "person_returned",
    "verify_difference",
    "not_anchored",
    "erasure_overdue",
]


class Notify(Limits):
    """Messages to people: one when an incident begins, one when it is over."""

    urls: Annotated[tuple[SecretStr, ...], Field(min_length=1)] = Field(
        title="Addresses",
        description="Addresses of Apprise, such as ${SLACK_URL}, mailtos://…, or json://host/path for a webhook "
        "(https://appriseit.com/services/).",
    )
    kinds: Annotated[tuple[_Kind, ...], Field(min_length=1)] = Field(
        default=get_args(_Kind), title="Kinds", description="Which incidents are sent (default: all)."
    )
    min_feed_days: MinFeedDays = 7
    max_dead_letters: MaxDeadLetters = 0
    max_unanchored: MaxUnanchored = dt.timedelta(hours=1)
    max_overdue_erasures: MaxOverdueErasures = 0


def _resolve_text_file(value: Any, info: ValidationInfo) -> Path:
    if not isinstance(value, (str, Path)) or not str(value).endswith(".prom"):
        raise ValueError("must be the path of a file with the ending .prom: node-exporter reads no other")
    if "://" in str(value):
        raise ValueError("must be a local path")
    return resolve_path(value, folder_of(info))


TextFile = Annotated[
    Path, PlainValidator(_resolve_text_file), WithJsonSchema({"type": "string", "pattern": "[.]prom$"})
]


def _check_receiver(value: str) -> str:
    if re.fullmatch(r"https?://[^/@?#\s]+(/[^?#\s]*)?", value) is None:
        raise ValueError(
            "must be an address such as https://HOST:4318, without a user name, a password or a query: "
            "a token belongs in `headers`"
        )
    return value


def _check_header(value: SecretStr) -> SecretStr:
    if re.fullmatch(r"[!-~]([ -~]*[!-~])?", value.get_secret_value()) is None:
        raise ValueError("must be printable ASCII, without spaces around it")
    return value


class Otlp(Model):
    """A receiver of OpenTelemetry metrics (OTLP over HTTP, protobuf), such as a collector."""

    endpoint: Annotated[str, AfterValidator(_check_receiver)] = Field(
        title="Address", description="`https://HOST:4318`; `/v1/metrics` is added unless it ends with it."
    )
    headers: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")],
        Annotated[SecretStr, AfterValidator(_check_header)],
    ] = Field(
        default={},
        title="Headers",
        description="Sent with each request. Do not write a token into the file: ${OTLP_TOKEN} reads it from the "
        "environment.",
    )


class Metrics(Model):
    """Where `run` stores its metrics, and where it sends them."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    textfile: TextFile | None = Field(
        default=None,
        title="Text file",
        description="A file for the text-file collector of node-exporter, which each `run` writes, and continues the totals "
        "of the last one. Commands that run at the same time need a file each. Needs the extra `metrics`.",
    )
    otlp: Otlp | None = Field(
        default=None,
        title="OTLP",
        description="A receiver to which `run` sends its metrics every 15 seconds and at its end. Needs the extra `otlp`.",
    )

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if self.textfile is None and self.otlp is None:
            raise ValueError("names no place: set `textfile` or `otlp`")
        return self

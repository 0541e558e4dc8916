"""The blocks of the configuration for what operators see: `lineage`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, SecretStr, ValidationInfo, WithJsonSchema

from infra.base_model import Model
from infra.config.values import folder_of, resolve_path

__all__ = ["FileTransport", "HttpTransport", "KafkaTransport", "Lineage"]


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

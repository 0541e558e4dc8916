"""The ``storage`` block of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from infra.config.base_model import Model

__all__ = ["S3", "Bucket", "Commits", "DynamoDBCommits", "SingleWriterCommits", "Storage"]

_CREDENTIALS = re.compile(r"default|env|profile:\S+|assume_role:arn:[a-z-]+:iam::\d{12}:role/\S+")
_URL = re.compile(r"https?://[^\s/@]+(:\d+)?/?")


def _credentials(value: str) -> str:
    if not _CREDENTIALS.fullmatch(value):
        raise ValueError("must be default, env, profile:NAME or assume_role:ARN; keys never stand in this file")
    return value


def _endpoint(value: str) -> str:
    if not _URL.fullmatch(value):
        raise ValueError("must be a URL such as https://s3.example.com:9000, without user, path or query")
    return value.rstrip("/")


_Region = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]
_Endpoint = Annotated[str, AfterValidator(_endpoint)]
_Credentials = Annotated[str, AfterValidator(_credentials)]


class Bucket(Model):
    """How to reach one bucket. What is left out is as for all the others."""

    region: _Region | None = Field(default=None, title="Region", description="The AWS region, such as eu-west-1.")
    endpoint: _Endpoint | None = Field(
        default=None, title="Endpoint", description="The URL of an S3-compatible store; left out, it is AWS."
    )
    path_style: bool | None = Field(
        default=None,
        title="Path style",
        description="Name the bucket in the path and not in the host name, which most S3-compatible stores need.",
    )
    credentials: _Credentials | None = Field(
        default=None,
        title="Credentials",
        description="Where the keys come from: `default` (the usual chain of AWS), `env` (AWS_ACCESS_KEY_ID and the "
        "like), `profile:NAME` or `assume_role:ARN`. Never the keys themselves.",
    )


class S3(Bucket):
    """How to reach the buckets."""

    buckets: Mapping[str, Bucket] = Field(
        default_factory=dict, title="Buckets", description="What is different for a bucket, by its name."
    )

    def bucket(self, name: str | None) -> Bucket:
        """Everything that holds for that bucket, or for any that is not named."""
        own = self.buckets.get(name or "", Bucket()).model_dump(exclude_none=True)
        return Bucket(**{**self.model_dump(exclude={"buckets"}, exclude_none=True), **own})


class DynamoDBCommits(Model):
    """Commits of several clusters are kept apart by a DynamoDB table, through Delta's own S3DynamoDBLogStore."""

    kind: Literal["dynamodb"] = Field(title="Kind", description="Several writers, kept apart by a DynamoDB table.")
    table: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] = Field(
        default="delta_log",
        title="Table",
        description="The lock table. Every cluster that writes has to use the same one.",
    )
    region: _Region | None = Field(
        default=None, title="Region", description="The lock table's region; left out, that of `storage.s3`."
    )
    endpoint: _Endpoint | None = Field(
        default=None, title="Endpoint", description="The URL of a DynamoDB-compatible server; left out, it is AWS."
    )


class SingleWriterCommits(Model):
    """Nothing keeps two writers apart: whoever writes this promises that there is one."""

    kind: Literal["single_writer"] = Field(
        title="Kind",
        description="The promise that exactly one process writes. A second one makes commits vanish without an error.",
    )


Commits = Annotated[DynamoDBCommits | SingleWriterCommits, Field(discriminator="kind")]


class Storage(Model):
    """Where tables on S3 are, and what keeps the commits of several writers apart."""

    s3: S3 = Field(default=S3(), title="S3", description="How to reach the buckets.")
    commits: Commits | None = Field(
        default=None,
        title="Commits",
        description="What keeps writers apart: `kind: dynamodb` or `kind: single_writer`. Left out, nothing is written "
        "to S3; reading and replicating from it needs no lock.",
    )

    @property
    def lock(self) -> DynamoDBCommits | None:
        """The lock table, with its region filled in; None without one."""
        if not isinstance(self.commits, DynamoDBCommits):
            return None
        return self.commits.model_copy(update={"region": self.commits.region or self.s3.region})

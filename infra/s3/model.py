"""The ``storage`` block of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from infra.base_model import Model

__all__ = ["S3", "Bucket", "Commits", "DynamoDBCommits", "SingleWriterCommits", "Storage"]

_CREDENTIALS = re.compile(r"default|env|profile:\S+|assume_role:arn:[a-z-]+:iam::\d{12}:role/\S+")
_URL = re.compile(r"https?://[^\s/@]+(:\d+)?/?")


def _check_credentials(value: str) -> str:
    if not _CREDENTIALS.fullmatch(value):
        raise ValueError("must be default, env, profile:NAME or assume_role:ARN; never write the keys into this file")
    return value


def _check_endpoint(value: str) -> str:
    if not _URL.fullmatch(value):
        raise ValueError("must be a URL such as https://s3.example.com:9000, without user, path or query")
    return value.rstrip("/")


_Region = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]
_Endpoint = Annotated[str, AfterValidator(_check_endpoint)]
_Credentials = Annotated[str, AfterValidator(_check_credentials)]


class Bucket(Model):
    """How to access one bucket. Settings that are left out are those of `storage.s3`."""

    region: _Region | None = Field(default=None, title="Region", description="The AWS region, such as eu-west-1.")
    endpoint: _Endpoint | None = Field(
        default=None, title="Endpoint", description="The URL of an S3-compatible store; AWS by default."
    )
    path_style: bool | None = Field(
        default=None,
        title="Path style",
        description="Put the bucket into the path instead of the host name; most S3-compatible stores need that.",
    )
    credentials: _Credentials | None = Field(
        default=None,
        title="Credentials",
        description="The source of the credentials: `default` (the default chain of AWS), `env` (AWS_ACCESS_KEY_ID and "
        "related variables), `profile:NAME` or `assume_role:ARN`. Never the keys themselves.",
    )


class S3(Bucket):
    """How to access the buckets."""

    buckets: Mapping[str, Bucket] = Field(
        default_factory=dict, title="Buckets", description="Settings for single buckets, by name."
    )

    def bucket(self, name: str | None) -> Bucket:
        """All settings of that bucket, or of any bucket without settings of its own."""
        own = self.buckets.get(name or "", Bucket()).model_dump(exclude_none=True)
        return Bucket(**{**self.model_dump(exclude={"buckets"}, exclude_none=True), **own})


class DynamoDBCommits(Model):
    """A DynamoDB table coordinates the commits of several clusters, through Delta's S3DynamoDBLogStore."""

    kind: Literal["dynamodb"] = Field(title="Kind", description="Several writers, coordinated by a DynamoDB table.")
    table: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] = Field(
        default="delta_log",
        title="Table",
        description="The lock table. Every cluster that writes must use the same one.",
    )
    region: _Region | None = Field(
        default=None, title="Region", description="The region of the lock table; by default the one of `storage.s3`."
    )
    endpoint: _Endpoint | None = Field(
        default=None, title="Endpoint", description="The URL of a DynamoDB-compatible server; AWS by default."
    )


class SingleWriterCommits(Model):
    """Nothing coordinates writers: this setting is a promise that there is only one."""

    kind: Literal["single_writer"] = Field(
        title="Kind",
        description="The promise that exactly one process writes. With a second writer commits are lost without an error.",
    )


Commits = Annotated[DynamoDBCommits | SingleWriterCommits, Field(discriminator="kind")]


class Storage(Model):
    """How to access tables on S3, and how the commits of several writers are coordinated."""

    s3: S3 = Field(default=S3(), title="S3", description="How to access the buckets.")
    commits: Commits | None = Field(
        default=None,
        title="Commits",
        description="How writers are coordinated: `kind: dynamodb` or `kind: single_writer`. Without it nothing is written "
        "to S3; reading and replicating from S3 needs no lock. Azure Data Lake Storage Gen2, Google Cloud Storage and HDFS "
        "need no such setting: they create a file only if it does not exist.",
    )

    @property
    def lock(self) -> DynamoDBCommits | None:
        """The lock table with its region; None where none is configured."""
        if not isinstance(self.commits, DynamoDBCommits):
            return None
        return self.commits.model_copy(update={"region": self.commits.region or self.s3.region})

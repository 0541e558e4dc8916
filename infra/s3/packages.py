"""The Maven packages that tables on S3 need beside Delta: 14 MB instead of Amazon's bundle of 686 MB."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

from cdf.errors import ConfigError
from cdf.extras import require_extra
from infra.s3.model import DynamoDBCommits, Storage
from infra.spark_pairs import installed_pair

__all__ = ["LOG_STORE_ARTIFACT", "hadoop_version", "list_excludes", "list_packages", "uses_lock_table"]

LOG_STORE_ARTIFACT = "delta-storage-s3-dynamodb"

_AWS_SDK_1 = "1.12.797"  # Delta's log store uses the first SDK, and hadoop-aws up to 3.3


@cache
def hadoop_version() -> str:
    """The version of the Hadoop client inside the installed PySpark, which hadoop-aws must have as well."""
    require_extra("spark")
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for jar in (Path(folder) / "jars").glob("hadoop-client-api-*.jar"):
            return jar.stem.removeprefix("hadoop-client-api-")
    raise ConfigError(
        "the installed PySpark contains no Hadoop client, so the required version of hadoop-aws is unknown",
        hint="install the complete package with `pip install pyspark`, or set `jars:` to the jars of SPARK_HOME",
    )


def list_packages(storage: Storage) -> list[str]:
    """Maven coordinates."""
    packages = [f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"]
    sdk = installed_pair().aws_sdk
    if sdk is None:
        first = ["s3", "sts", "dynamodb"]  # its S3 file system names classes of DynamoDB
        packages += [f"com.amazonaws:aws-java-sdk-{name}:{_AWS_SDK_1}" for name in first]
        if uses_lock_table(storage):
            packages.append(f"io.delta:{LOG_STORE_ARTIFACT}:{metadata.version('delta-spark')}")
        return packages
    kinds = {one.credentials or "default" for one in (storage.s3, *storage.s3.buckets.values())}
    modules = ["s3", "s3-transfer-manager", "apache-client", "netty-nio-client"]
    if kinds != {"env"}:  # for roles: of assume_role, of a profile, and of a Kubernetes service account
        modules.append("sts")
    packages += [f"software.amazon.awssdk:{name}:{sdk}" for name in modules]
    if uses_lock_table(storage):
        packages.append(f"io.delta:{LOG_STORE_ARTIFACT}:{metadata.version('delta-spark')}")
        packages.append(f"com.amazonaws:aws-java-sdk-dynamodb:{_AWS_SDK_1}")  # depends on joda-time and jackson's CBOR
        if (storage.s3.credentials or "").startswith("profile:"):
            packages.append(f"com.amazonaws:aws-java-sdk-sts:{_AWS_SDK_1}")
    return packages


def list_excludes(storage: Storage) -> list[str]:
    """Dependencies of the packages that are not needed. They are not needed without S3 either."""
    if installed_pair().aws_sdk is None:
        return ["com.amazonaws:aws-java-sdk-bundle", "org.wildfly.openssl:wildfly-openssl"]
    excludes = ["software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl"]
    return [*excludes, "com.amazonaws:aws-java-sdk-s3"] if uses_lock_table(storage) else excludes


def uses_lock_table(storage: Storage) -> bool:
    return isinstance(storage.commits, DynamoDBCommits)

"""The settings of Spark, and the options of its driver's Java, that follow from the ``storage`` block."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from cdf.errors import ConfigError
from cdf.source.single_writer import COMMITS_SETTING, LOCK_STORE
from infra.s3.address import is_s3, normalize_address
from infra.s3.model import Bucket, Storage
from infra.spark_pairs import installed_pair

__all__ = ["has_own_access", "java_options", "spark_conf"]

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_SDK_2 = "software.amazon.awssdk.auth.credentials"
_FROM_CONF = (
    # keys under spark.conf come first, as in Hadoop's own chain …
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
)
_PROVIDERS = {
    # … then the chain that boto3 and delta-rs use as well; Hadoop's own chain ignores ~/.aws
    "default": f"{_SDK_2}.DefaultCredentialsProvider",
    "env": f"{_SDK_2}.EnvironmentVariableCredentialsProvider",
    # Amazon's provider has one profile for the whole JVM, Hadoop's has one for each bucket
    "profile": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
}
_PROVIDERS_OF_FIRST_SDK = {
    "default": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    "env": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "profile": "com.amazonaws.auth.profile.ProfileCredentialsProvider",
}
"""Of hadoop-aws up to 3.3, and of Delta's log store: classes whose constructors need no arguments."""
_PATIENCE = {
    # By default Hadoop waits 200 s for an answer, 6 times, and repeats that 8 times: more than two hours with a server that
    # never answers. Here it is 15 s, 3 times, 3 times. S3 begins to answer within a second or two. A busy server (503) has a
    # separate limit, which is unchanged: fs.s3a.retry.throttle.limit. In milliseconds, because Hadoop 3.3 knows no units.
    "connection.establish.timeout": "5000",
    "connection.timeout": "15000",
    "attempts.maximum": "2",
    "retry.limit": "2",
}


def has_own_access(conf: Mapping[str, str]) -> bool:
    """Whether Spark's settings name an endpoint or credentials for S3, which boto3 does not know."""
    names = ("endpoint", "access.key", "aws.credentials.provider")
    return any(name.startswith("spark.hadoop.fs.s3a.") and name.endswith(names) for name in conf)


def spark_conf(storage: Storage, addresses: Iterable[str] = ()) -> dict[str, str]:
    """Spark's settings for tables on S3. ``addresses``: tables to open, whose scheme must be ``s3a``.

    Raises one ConfigError for everything that Spark cannot be configured for.
    """
    problems = [
        f"{address} must be written as {normalize_address(address)}: another spelling has another commit lock"
        for address in addresses
        if is_s3(address) and not address.startswith("s3a://")
    ]
    conf = {
        "spark.hadoop.fs.s3.impl": _S3A,
        "spark.hadoop.fs.s3n.impl": _S3A,
        # By default a VACUUM of a small table has ten thousand tasks; a session on one machine sets its own number
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
    }
    conf |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in _PATIENCE.items()}
    conf |= _s3a_settings("fs.s3a", storage.s3, credentials=storage.s3.credentials or "default")
    for name, own in storage.s3.buckets.items():
        conf |= _s3a_settings(f"fs.s3a.bucket.{name}", own, credentials=own.credentials)
    if storage.commits is not None:
        conf[COMMITS_SETTING] = storage.commits.kind
    if (lock := storage.lock) is not None:
        if lock.region is None:
            problems.append("the lock table has no region: set storage.commits.region")
        provider = _PROVIDERS_OF_FIRST_SDK.get((storage.s3.credentials or "default").partition(":")[0])
        if provider is None:
            problems.append(
                "storage.s3.credentials: the log store in Spark cannot assume a role: set profile:NAME, with role_arn and "
                "source_profile of that profile in ~/.aws/credentials"
            )
        conf |= {f"spark.delta.logStore.{scheme}.impl": LOCK_STORE for scheme in ("s3a", "s3", "s3n")}
        conf |= {
            f"spark.{LOCK_STORE}.ddb.tableName": lock.table,
            f"spark.{LOCK_STORE}.ddb.region": lock.region or "",
            f"spark.{LOCK_STORE}.credentials.provider": provider or "",
        }
    if problems:
        raise ConfigError("; ".join(problems), hint="`deltarelay storage show --for spark` shows the settings of Spark")
    return conf


def _s3a_settings(prefix: str, bucket: Bucket, *, credentials: str | None) -> dict[str, str]:
    """The settings of one bucket, or of all buckets without settings of their own."""
    settings: dict[str, str] = {}
    if bucket.endpoint is not None:
        settings["endpoint"] = bucket.endpoint
        settings["connection.ssl.enabled"] = _to_text(bucket.endpoint.startswith("https://"))
    if bucket.region is not None:
        settings["endpoint.region"] = bucket.region
    if bucket.path_style is not None:
        settings["path.style.access"] = _to_text(bucket.path_style)
    if credentials is not None:
        settings |= _s3a_credentials(credentials, bucket.region)
    return {f"spark.hadoop.{prefix}.{name}": value for name, value in settings.items()}


def _s3a_credentials(credentials: str, region: str | None) -> dict[str, str]:
    kind, _, name = credentials.partition(":")
    pair = installed_pair()
    providers = _PROVIDERS if pair.aws_sdk else _PROVIDERS_OF_FIRST_SDK
    if kind == "env":
        return {"aws.credentials.provider": providers["env"]}
    if kind == "profile":
        if pair.aws_sdk is None:
            raise ConfigError(
                f"credentials: profile:{name}: Hadoop {pair.hadoop}, inside of PySpark {pair.line}, cannot name a profile",
                hint=f"set AWS_PROFILE={name} and no `credentials`, or use PySpark 4.0 or newer",
            )
        return {"aws.credentials.provider": providers["profile"], "auth.profile.name": name}
    if kind == "assume_role":
        settings = {
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
            "assumed.role.arn": name,
            "assumed.role.session.name": "deltarelay",
            "assumed.role.credentials.provider": providers["default"],
        }
        if region is not None:  # Hadoop accepts a region for STS only together with an endpoint
            ending = ".cn" if region.startswith("cn-") else ""
            settings |= {
                "assumed.role.sts.endpoint": f"sts.{region}.amazonaws.com{ending}",
                "assumed.role.sts.endpoint.region": region,
            }
        return settings
    return {"aws.credentials.provider": ",".join([*_FROM_CONF, providers["default"]])}


def _to_text(value: bool) -> str:
    return "true" if value else "false"


def java_options(
    storage: Storage, folder: Path | None, *, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Options of the driver's Java. The log store takes a profile, and another endpoint, only from there.

    An endpoint is written to a regions file in ``folder``; without a folder no file is written. Raises ConfigError for an
    endpoint or a profile that the log store would not use.
    """
    environment = os.environ if environment is None else environment
    lock = storage.lock
    if lock is None:
        return ()
    options = []
    kind, _, profile = (storage.s3.credentials or "").partition(":")
    if kind == "profile":
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            if environment.get(name, profile) != profile:
                raise ConfigError(
                    f"{name} names another profile than storage.s3.credentials, and the log store in Spark prefers it",
                    hint=f"unset {name}, or set both to the same profile",
                )
        options.append(f"-Daws.profile={profile}")
    if lock.endpoint is not None:
        address = urlsplit(lock.endpoint)
        if address.scheme != "https":
            raise ConfigError(
                "storage.commits.endpoint: the log store in Spark requires TLS",
                hint="give that server a certificate and write https://…; delta-rs and `storage lock` accept http as well",
            )
        # For a host name without a region the first SDK signs for us-east-1. A server that takes the region from the
        # signature then shows another table of the same name, or the log store creates one
        # (tests/acceptance/test_s3_writers.py)
        if lock.region != "us-east-1" and not address.netloc.startswith(f"dynamodb.{lock.region}."):
            raise ConfigError(
                f"storage.commits.endpoint: for a host name without a region the log store in Spark uses us-east-1, not "
                f"{lock.region}, and therefore another lock table",
                hint=f"name the host dynamodb.{lock.region}.…, or set storage.commits.region: us-east-1 in every writer",
            )
        text = _REGIONS.format(region=escape(lock.region or ""), host=escape(address.netloc))
        name = f"regions-{hashlib.sha256(text.encode()).hexdigest()[:16]}.xml"
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        options.append(f"-Dcom.amazonaws.regions.RegionUtils.fileOverride={(folder or Path('FOLDER')) / name}")
    return tuple(options)


_REGIONS = """\
<?xml version="1.0" encoding="UTF-8"?>
<XML><Regions><Region>
  <Name>{region}</Name>
  <Endpoint>
    <ServiceName>dynamodb</ServiceName>
    <Http>false</Http>
    <Https>true</Https>
    <Hostname>{host}</Hostname>
  </Endpoint>
</Region></Regions></XML>
"""

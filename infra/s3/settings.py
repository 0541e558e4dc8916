"""What follows from the ``storage`` block: settings for Spark, the jars that these need, options for delta-rs.

``spark_conf``, ``packages`` and ``excludes`` are pure. ``located``, ``java_options`` and ``delta_rs_options`` look around:
at the files in ``~/.aws``, at the environment, and for a role at AWS.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from cdf.errors import ConfigError
from cdf.source.single_writer import COMMITS_SETTING, LOCK_STORE
from infra.s3 import clients as aws
from infra.s3.address import S3Address, is_s3, normalised
from infra.s3.model import Bucket, DynamoDBCommits, SingleWriterCommits, Storage

__all__ = [
    "MASK",
    "LOG_STORE_ARTIFACT",
    "Options",
    "delta_rs_options",
    "excludes",
    "hadoop_version",
    "is_secret",
    "java_options",
    "located",
    "locks",
    "masked",
    "packages",
    "spark_conf",
]

LOG_STORE_ARTIFACT = "delta-storage-s3-dynamodb"
MASK = "****"

_AWS_SDK = (
    "2.35.4"  # what hadoop-aws 3.5.0 is built with, in the four modules that it uses: 14 MB, not the bundle's 686
)
_AWS_SDK_1 = "1.12.797"  # the log store is written for the first SDK
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_SDK_2 = "software.amazon.awssdk.auth.credentials"
_LAST_DELTA_RS_WITH_LOCK = (1, 6, 0)
_SECRET = re.compile(r"(?i)secret|token|passw|access[._-]?key")

_DEFAULT_PROVIDERS = (
    # keys that somebody has set under spark.conf come first, as in Hadoop's own chain …
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    # … then what boto3 and delta-rs use as well; Hadoop's chain leaves out ~/.aws
    f"{_SDK_2}.DefaultCredentialsProvider",
)
_PATIENCE = {
    # Hadoop waits 200 s for an answer, 6 times, and begins 8 times: more than two hours against a server that is silent.
    # Here it is 15 s, 3 times, 3 times. S3 begins to answer within a second or two; a busy one (503) has a limit of its
    # own, which stays: fs.s3a.retry.throttle.limit.
    "connection.establish.timeout": "5s",
    "connection.timeout": "15s",
    "attempts.maximum": "2",
    "retry.limit": "2",
}
_DELTA_RS_PATIENCE = {"connect_timeout": "3s", "timeout": "15s", "max_retries": "2", "retry_timeout": "30s"}
"""delta-rs' own: 30 s for an answer, ten times, up to three minutes."""


class Options(dict[str, str]):
    """Options with keys and tokens among them, which neither ``repr`` nor a log line shows."""

    def __repr__(self) -> str:
        return repr(masked(self))

    __str__ = __repr__


def is_secret(name: str) -> bool:
    """Whether a setting's value is never to be shown."""
    return _SECRET.search(name) is not None and not name.endswith((".provider", ".impl"))


def masked(options: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if is_secret(name) else value for name, value in options.items()}


# ── Spark ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def spark_conf(storage: Storage, addresses: Iterable[str] = ()) -> dict[str, str]:
    """Spark's settings for tables on S3. ``addresses`` are tables that will be opened: each has to be spelled our way.

    Raises ConfigError for what Spark cannot be told, all of it at once.
    """
    problems = [
        f"{address} is spelled otherwise than {normalised(address)}: the commit lock would be another one"
        for address in addresses
        if is_s3(address) and not address.startswith("s3a://")
    ]
    conf = {
        "spark.hadoop.fs.s3.impl": _S3A,
        "spark.hadoop.fs.s3n.impl": _S3A,
        # Else a VACUUM of a small table is ten thousand tasks; a session on one machine has its own number
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
    }
    conf |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in _PATIENCE.items()}
    conf |= _s3a("fs.s3a", storage.s3, credentials=storage.s3.credentials or "default")
    for name, own in storage.s3.buckets.items():
        conf |= _s3a(f"fs.s3a.bucket.{name}", own, credentials=own.credentials)
    if storage.commits is not None:
        conf[COMMITS_SETTING] = storage.commits.kind
    if (lock := storage.lock) is not None:
        if lock.region is None:
            problems.append("the lock table has no region: set storage.commits.region")
        provider = _log_store_credentials(storage.s3.credentials)
        if provider is None:
            problems.append(
                "storage.s3.credentials: the log store in Spark cannot take a role by itself: name a profile that has "
                "role_arn and source_profile in ~/.aws/credentials, profile:NAME"
            )
        conf |= {f"spark.delta.logStore.{scheme}.impl": LOCK_STORE for scheme in ("s3a", "s3", "s3n")}
        conf |= {
            f"spark.{LOCK_STORE}.ddb.tableName": lock.table,
            f"spark.{LOCK_STORE}.ddb.region": lock.region or "",
            f"spark.{LOCK_STORE}.credentials.provider": provider or "",
        }
    if problems:
        raise ConfigError("; ".join(problems), hint="`deltarelay storage show --for spark` shows what Spark is given")
    return conf


def _s3a(prefix: str, bucket: Bucket, *, credentials: str | None) -> dict[str, str]:
    """The settings of one bucket, or of all that are not named."""
    told: dict[str, str] = {}
    if bucket.endpoint is not None:
        told["endpoint"] = bucket.endpoint
        told["connection.ssl.enabled"] = _yes(bucket.endpoint.startswith("https://"))
    if bucket.region is not None:
        told["endpoint.region"] = bucket.region
    if bucket.path_style is not None:
        told["path.style.access"] = _yes(bucket.path_style)
    if credentials is not None:
        told |= _s3a_credentials(credentials, bucket.region)
    return {f"spark.hadoop.{prefix}.{name}": value for name, value in told.items()}


def _s3a_credentials(credentials: str, region: str | None) -> dict[str, str]:
    kind, _, name = credentials.partition(":")
    if kind == "env":
        return {"aws.credentials.provider": f"{_SDK_2}.EnvironmentVariableCredentialsProvider"}
    if kind == "profile":
        # Amazon's own provider takes one profile for the whole JVM; Hadoop's takes one for each bucket
        provider = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"
        return {"aws.credentials.provider": provider, "auth.profile.name": name}
    if kind == "assume_role":
        told = {
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
            "assumed.role.arn": name,
            "assumed.role.session.name": "deltarelay",
            "assumed.role.credentials.provider": f"{_SDK_2}.DefaultCredentialsProvider",
        }
        if region is not None:  # Hadoop takes a region for STS only together with an endpoint
            ending = ".cn" if region.startswith("cn-") else ""
            told |= {
                "assumed.role.sts.endpoint": f"sts.{region}.amazonaws.com{ending}",
                "assumed.role.sts.endpoint.region": region,
            }
        return told
    return {"aws.credentials.provider": ",".join(_DEFAULT_PROVIDERS)}


def _log_store_credentials(credentials: str | None) -> str | None:
    """A class of the first SDK that needs no arguments; None where there is no such class."""
    kind = (credentials or "default").partition(":")[0]
    return {
        "default": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
        "env": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        "profile": "com.amazonaws.auth.profile.ProfileCredentialsProvider",
    }.get(kind)


def _yes(value: bool) -> str:
    return "true" if value else "false"


def java_options(
    storage: Storage, folder: Path | None, *, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What the log store can be told only by options of the driver's Java: a profile, and another endpoint.

    An endpoint is written into a regions file in ``folder``; without a folder only the option is told. Raises
    ConfigError for an endpoint or a profile that the log store would not use.
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
                    hint=f"unset {name}, or let both name the same",
                )
        options.append(f"-Daws.profile={profile}")
    if lock.endpoint is not None:
        address = urlsplit(lock.endpoint)
        if address.scheme != "https":
            raise ConfigError(
                "storage.commits.endpoint: the log store in Spark speaks TLS only",
                hint="give that server a certificate and write https://…; delta-rs and `storage lock` take http as well",
            )
        # For a host that names no region the first SDK signs for us-east-1, and a server that goes by the signature then
        # shows another table of the same name, which the log store even makes (tests/acceptance/test_s3_writers.py)
        if lock.region != "us-east-1" and not address.netloc.startswith(f"dynamodb.{lock.region}."):
            raise ConfigError(
                f"storage.commits.endpoint: for a host without a region in its name the log store in Spark takes "
                f"us-east-1, not {lock.region}, and would use another lock table",
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


# ── jars ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def hadoop_version() -> str:
    """The version of the Hadoop client that the installed PySpark carries: hadoop-aws has to be the same."""
    found = importlib.util.find_spec("pyspark")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        for jar in (Path(place) / "jars").glob("hadoop-client-api-*.jar"):
            return jar.stem.removeprefix("hadoop-client-api-")
    raise ConfigError(
        "the installed PySpark has no Hadoop client in it, so it cannot be told which hadoop-aws fits",
        hint="install the whole of it, `pip install pyspark`, or set SPARK_HOME's jars by `jars:`",
    )


def packages(storage: Storage) -> list[str]:
    """The Maven coordinates that tables on S3 need beside Delta: a few MB instead of Amazon's bundle of 686."""
    kinds = {one.credentials or "default" for one in (storage.s3, *storage.s3.buckets.values())}
    modules = ["s3", "s3-transfer-manager", "apache-client", "netty-nio-client"]
    if kinds != {"env"}:  # roles: ours, those of a profile, and those of a Kubernetes service account
        modules.append("sts")
    found = [f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"]
    found += [f"software.amazon.awssdk:{name}:{_AWS_SDK}" for name in modules]
    if locks(storage):
        found.append(f"io.delta:{LOG_STORE_ARTIFACT}:{metadata.version('delta-spark')}")
        found.append(f"com.amazonaws:aws-java-sdk-dynamodb:{_AWS_SDK_1}")  # brings joda-time and jackson's CBOR along
        if (storage.s3.credentials or "").startswith("profile:"):
            found.append(f"com.amazonaws:aws-java-sdk-sts:{_AWS_SDK_1}")
    return found


def excludes(storage: Storage) -> list[str]:
    """What the packages ask for and nobody needs. Never more than is right without S3 as well."""
    found = ["software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl"]
    return [*found, "com.amazonaws:aws-java-sdk-s3"] if locks(storage) else found


def locks(storage: Storage) -> bool:
    return isinstance(storage.commits, DynamoDBCommits)


# ── what has to be looked up ─────────────────────────────────────────────────────────────────────────────────────────


def located(storage: Storage) -> Storage:
    """The same with the region that boto3 finds (AWS_REGION, ~/.aws/config) where none is written."""
    if storage.s3.region is not None:
        return storage
    kind = storage.s3.credentials if (storage.s3.credentials or "").startswith("profile:") else None
    region = aws.session(kind).region_name
    if region is None:
        return storage
    return storage.model_copy(update={"s3": storage.s3.model_copy(update={"region": region})})


def delta_rs_options(storage: Storage, address: str, *, writing: bool = False) -> Options:
    """``storage_options`` for delta-rs (deltalake), with the keys that boto3 finds.

    Reading needs no lock and may trail the newest commit by one. ``writing`` is refused with a ConfigError where nothing
    would keep this writer and others apart.
    """
    table = S3Address.parse(address)
    bucket = storage.s3.bucket(table.bucket)
    found = aws.session(bucket.credentials, region=bucket.region)
    endpoint = bucket.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = found.region_name or ("us-east-1" if endpoint else None)
    if region is None:
        raise ConfigError(
            f"the bucket {table.bucket} has no region", hint="set storage.s3.region, or AWS_REGION in the environment"
        )
    options = Options(AWS_REGION=region, **_DELTA_RS_PATIENCE)
    with aws.in_words("looking for AWS credentials"):
        credentials = found.get_credentials()
        keys = None if credentials is None else credentials.get_frozen_credentials()
    if keys is None:
        raise ConfigError(
            "no AWS credentials were found",
            hint="set storage.s3.credentials (default, env, profile:NAME, assume_role:ARN) and see that they are there",
        )
    options |= {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
    if keys.token:
        options["AWS_SESSION_TOKEN"] = keys.token
    is_hosted = not bucket.path_style if endpoint is None else bucket.path_style is False
    options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = _yes(is_hosted)
    if endpoint is not None:
        scheme, _, host = endpoint.partition("://")  # delta-rs does not put the bucket in front of it by itself
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{table.bucket}.{host}" if is_hosted else endpoint
        options["AWS_ALLOW_HTTP"] = _yes(scheme == "http")
    if writing:
        options |= _lock_options(storage, address)
    return options


def _lock_options(storage: Storage, address: str) -> dict[str, str]:
    if storage.commits is None:
        raise ConfigError(
            f"nothing keeps writers of {address} apart, so nothing is written",
            hint="write out `storage: {commits: {kind: dynamodb, table: delta_log}}`, or, where exactly one process "
            "ever writes, kind: single_writer",
        )
    if isinstance(storage.commits, SingleWriterCommits):
        return {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"} if _delta_rs() <= _LAST_DELTA_RS_WITH_LOCK else {}
    if _delta_rs() > _LAST_DELTA_RS_WITH_LOCK:
        raise ConfigError(
            f"deltalake {metadata.version('deltalake')} ignores the lock table: its commits and Spark's would overwrite "
            "each other",
            hint="write with Spark, or with deltalake 1.6.0, the last that takes the lock; reading is fine with any",
        )
    lock = located(storage).lock
    assert lock is not None
    if lock.region is None:
        raise ConfigError("the lock table has no region", hint="set storage.commits.region")
    options = {
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": lock.table,
        "AWS_REGION_DYNAMODB": lock.region,
    }
    if lock.endpoint is not None:
        options["AWS_ENDPOINT_URL_DYNAMODB"] = lock.endpoint
        if lock.endpoint.startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
    return options


def _delta_rs() -> tuple[int, ...]:
    """The installed version, as far as it can be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", metadata.version("deltalake"))[:3])

"""What follows from the ``storage`` block: Spark's settings, jars, delta-rs' options, and nothing secret in sight."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdf.errors import ConfigError
from cdf.source.single_writer import LOCK_STORE
from infra.cli.commands.storage.show import show as show_command
from infra.cli.main import app as main_app
from infra.cli.options import normalize_table
from infra.diagnostics.storage_settings import show_settings
from infra.s3 import settings as module
from infra.s3.model import Storage
from infra.s3.packages import hadoop_version, list_excludes, list_packages
from infra.s3.settings import MASK, delta_rs_options, fill_in_region, is_secret, mask_secrets
from infra.s3.spark_settings import java_options, spark_conf
from infra.spark.session_builder import build_settings
from infra.spark_pairs import delta_package

KEY, SECRET, TOKEN = "AKIACANARY4410KEY", "canary/4410/secret", "canary-4410-token"
TABLE = "s3a://lake/customers"
LOCK = {"kind": "dynamodb", "table": "delta_log", "region": "eu-west-1"}
ALONE = {"kind": "single_writer"}
ROLE = "assume_role:arn:aws:iam::123456789012:role/reader"
ENDPOINT = "http://127.0.0.1:9000"


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def made(commits: Mapping[str, Any] | None = None, **s3: Any) -> Storage:
    return Storage.model_validate({"s3": {"region": "eu-west-1", **s3}, "commits": commits})


def s3a(conf: Mapping[str, str]) -> dict[str, str]:
    prefix = "spark.hadoop.fs.s3a."
    return {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}


# ── Spark ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_aws_needs_no_endpoint() -> None:
    conf = s3a(spark_conf(made()))
    assert conf["endpoint.region"] == "eu-west-1"
    assert not {"endpoint", "path.style.access", "connection.ssl.enabled"} & set(conf)


def test_another_store() -> None:
    conf = s3a(spark_conf(made(endpoint=ENDPOINT, path_style=True)))
    assert (conf["endpoint"], conf["path.style.access"], conf["connection.ssl.enabled"]) == (ENDPOINT, "true", "false")
    assert s3a(spark_conf(made(endpoint="https://s3.example.com")))["connection.ssl.enabled"] == "true"


def test_the_other_spellings_are_read_by_the_same_code() -> None:
    conf = spark_conf(made())
    assert {conf[f"spark.hadoop.fs.{scheme}.impl"] for scheme in ("s3", "s3n")} == {
        "org.apache.hadoop.fs.s3a.S3AFileSystem"
    }


@pytest.mark.parametrize(
    ("credentials", "provider", "more"),
    [
        (
            "default",
            "SimpleAWSCredentialsProvider,software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
            {},
        ),
        ("env", "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider", {}),
        ("profile:reader", "s3a.auth.ProfileAWSCredentialsProvider", {"auth.profile.name": "reader"}),
        (
            ROLE,
            "s3a.auth.AssumedRoleCredentialProvider",
            {
                "assumed.role.arn": "arn:aws:iam::123456789012:role/reader",
                "assumed.role.sts.endpoint": "sts.eu-west-1.amazonaws.com",
                "assumed.role.sts.endpoint.region": "eu-west-1",
            },
        ),
    ],
)
def test_where_keys_come_from(credentials: str, provider: str, more: dict[str, str]) -> None:
    conf = s3a(spark_conf(made(credentials=credentials)))
    assert conf["aws.credentials.provider"].endswith(provider)
    assert more.items() <= conf.items()


def test_a_bucket_says_only_what_is_different() -> None:
    conf = s3a(spark_conf(made(buckets={"raw": {"region": "us-west-2", "credentials": "profile:raw"}})))
    about = {name: value for name, value in conf.items() if name.startswith("bucket.")}
    assert about == {
        "bucket.raw.endpoint.region": "us-west-2",
        "bucket.raw.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
        "bucket.raw.auth.profile.name": "raw",
    }


def test_a_silent_store_is_given_up_within_minutes() -> None:
    conf = s3a(spark_conf(made()))
    tries = (int(conf["attempts.maximum"]) + 1) * (int(conf["retry.limit"]) + 1)
    assert int(conf["connection.timeout"]) / 1000 * tries < 180


@pytest.mark.parametrize(("commits", "told"), [(None, None), (ALONE, "single_writer"), (LOCK, "dynamodb")])
def test_what_keeps_writers_apart_is_told_to_the_session(commits: Any, told: str | None) -> None:
    conf = spark_conf(made(commits))
    assert conf.get("spark.deltarelay.commits") == told
    assert any("logStore" in name for name in conf) == (commits is LOCK)


def test_the_lock_table() -> None:
    conf = spark_conf(made({**LOCK, "region": None}))
    assert {conf[f"spark.delta.logStore.{scheme}.impl"] for scheme in ("s3a", "s3", "s3n")} == {LOCK_STORE}
    assert conf[f"spark.{LOCK_STORE}.ddb.tableName"] == "delta_log"
    assert conf[f"spark.{LOCK_STORE}.ddb.region"] == "eu-west-1"
    assert conf[f"spark.{LOCK_STORE}.credentials.provider"] == "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"


def test_all_that_spark_cannot_be_told_at_once() -> None:
    storage = Storage.model_validate({"s3": {"credentials": ROLE}, "commits": {"kind": "dynamodb"}})
    with pytest.raises(ConfigError) as caught:
        spark_conf(storage, ["s3://lake/customers"])
    for words in ("role_arn", "set storage.commits.region", "s3a://lake/customers"):
        assert words in caught.value.message
    assert spark_conf(made(), [TABLE, "/local/table"])


def test_the_log_store_hears_of_a_profile_by_javas_options(tmp_path: Path) -> None:
    storage = made(LOCK, credentials="profile:writer")
    assert spark_conf(storage)[f"spark.{LOCK_STORE}.credentials.provider"].endswith(
        "profile.ProfileCredentialsProvider"
    )
    assert java_options(storage, tmp_path, environment={}) == ("-Daws.profile=writer",)
    with pytest.raises(ConfigError, match="AWS_PROFILE names another profile"):
        java_options(storage, tmp_path, environment={"AWS_PROFILE": "other"})
    assert java_options(made(ALONE, credentials="profile:writer"), tmp_path, environment={}) == ()


def test_the_log_store_hears_of_an_endpoint_by_a_regions_file(tmp_path: Path) -> None:
    storage = made({**LOCK, "region": "us-east-1", "endpoint": "https://127.0.0.1:8443"})
    (option,) = java_options(storage, tmp_path / "new", environment={})
    name, _, file = option.partition("=")
    assert name == "-Dcom.amazonaws.regions.RegionUtils.fileOverride"
    (region,) = ET.parse(file).getroot().iter("Region")
    told = [region.findtext(f"Endpoint/{tag}") for tag in ("ServiceName", "Https", "Hostname")]
    assert [region.findtext("Name"), *told] == ["us-east-1", "dynamodb", "true", "127.0.0.1:8443"]
    named = made({**LOCK, "endpoint": "https://dynamodb.eu-west-1.vpce.example"})
    assert len(java_options(named, tmp_path, environment={})) == 1
    with pytest.raises(ConfigError, match="and therefore another lock table"):
        java_options(made({**LOCK, "endpoint": "https://127.0.0.1:8443"}), tmp_path, environment={})
    with pytest.raises(ConfigError, match="requires TLS"):
        java_options(made({**LOCK, "endpoint": ENDPOINT}), tmp_path, environment={})


# ── jars ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_small_set_of_jars() -> None:
    assert list_packages(made(credentials="env")) == [
        f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
        "software.amazon.awssdk:s3:2.35.4",
        "software.amazon.awssdk:s3-transfer-manager:2.35.4",
        "software.amazon.awssdk:apache-client:2.35.4",
        "software.amazon.awssdk:netty-nio-client:2.35.4",
    ]
    assert "software.amazon.awssdk:bundle" in list_excludes(made())
    assert re.fullmatch(r"3\.\d+\.\d+", hadoop_version())


def test_roles_need_one_more() -> None:
    assert "software.amazon.awssdk:sts:2.35.4" in list_packages(made(credentials=ROLE))
    assert "software.amazon.awssdk:sts:2.35.4" in list_packages(
        made(credentials="env", buckets={"b": {"credentials": ROLE}})
    )


def test_the_lock_needs_the_log_store_in_deltas_version() -> None:
    found = list_packages(made(LOCK))
    assert f"io.delta:delta-storage-s3-dynamodb:{metadata.version('delta-spark')}" in found
    assert "com.amazonaws:aws-java-sdk-dynamodb:1.12.797" in found
    assert not any("dynamodb" in one for one in list_packages(made(ALONE)))


def test_a_session_with_tables_on_s3() -> None:
    chosen = build_settings("local[2]", environment={}, storage=made(LOCK), java=["-Dx=y"])
    assert chosen["spark.jars.packages"].split(",") == [delta_package(), *list_packages(made(LOCK))]
    assert chosen["spark.jars.excludes"].endswith(",".join(list_excludes(made(LOCK))))
    assert "hadoop-client-runtime" in chosen["spark.jars.excludes"]
    assert chosen["spark.sql.sources.parallelPartitionDiscovery.parallelism"] == "2"
    assert chosen["spark.driver.extraJavaOptions"] == "-Dx=y"
    assert spark_conf(made(LOCK)).items() - chosen.items() == {
        ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "64")
    }
    assert not [name for name in build_settings("local[2]", environment={}) if "s3" in name or "deltarelay" in name]


def test_what_the_caller_sets_for_s3_wins() -> None:
    conf = {"spark.hadoop.fs.s3a.endpoint": "http://other", "spark.driver.extraJavaOptions": "-Da=b"}
    chosen = build_settings("local[2]", environment={}, storage=made(endpoint=ENDPOINT), java=["-Dx=y"], conf=conf)
    assert chosen["spark.hadoop.fs.s3a.endpoint"] == "http://other"
    assert chosen["spark.driver.extraJavaOptions"] == "-Dx=y -Da=b"


def test_a_log_store_that_is_named_is_not_fetched() -> None:
    conf = {"spark.jars": "/opt/delta-storage-s3-dynamodb-4.4.0.jar"}
    chosen = build_settings("local[2]", environment={}, storage=made(LOCK), conf=conf)
    assert "delta-storage-s3-dynamodb" not in chosen["spark.jars.packages"]
    assert "aws-java-sdk-dynamodb" in chosen["spark.jars.packages"]


def test_under_spark_submit_the_jars_are_not_ours() -> None:
    chosen = build_settings(None, environment={}, storage=made(LOCK), java=["-Dx=y"])
    assert chosen["spark.deltarelay.commits"] == "dynamodb"
    assert not {"spark.jars.packages", "spark.jars.excludes", "spark.driver.extraJavaOptions"} & set(chosen)


# ── delta-rs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_delta_rs_reads_with_the_keys_that_boto3_finds() -> None:
    found = delta_rs_options(made(), "s3://lake/customers")
    assert found["AWS_REGION"] == "eu-west-1"
    assert (found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"], found["AWS_SESSION_TOKEN"]) == (
        KEY,
        SECRET,
        TOKEN,
    )
    assert found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] == "true"
    assert "AWS_ENDPOINT_URL" not in found
    assert not any("DYNAMO" in name for name in found)


@pytest.mark.parametrize(
    ("path_style", "endpoint", "hosted"),
    [(True, ENDPOINT, "false"), (None, ENDPOINT, "false"), (False, "http://lake.127.0.0.1:9000", "true")],
)
def test_delta_rs_at_another_store(path_style: bool | None, endpoint: str, hosted: str) -> None:
    found = delta_rs_options(made(endpoint=ENDPOINT, path_style=path_style), TABLE)
    assert (found["AWS_ENDPOINT_URL"], found["AWS_ALLOW_HTTP"]) == (endpoint, "true")
    assert found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] == hosted


def test_delta_rs_hears_of_the_buckets_own_settings() -> None:
    storage = made(buckets={"lake": {"region": "us-west-2", "endpoint": ENDPOINT}})
    assert delta_rs_options(storage, TABLE)["AWS_REGION"] == "us-west-2"
    assert "AWS_ENDPOINT_URL" not in delta_rs_options(storage, "s3a://other/t")


def test_a_region_is_asked_for_only_where_nobody_knows_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Storage()
    with pytest.raises(ConfigError, match="the bucket lake has no region"):
        delta_rs_options(nowhere, TABLE)
    assert fill_in_region(nowhere) == nowhere
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert delta_rs_options(nowhere, TABLE)["AWS_REGION"] == "eu-north-1"
    assert fill_in_region(nowhere).s3.region == "eu-north-1"
    assert fill_in_region(made()).s3.region == "eu-west-1"


def test_no_keys_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match="no AWS credentials were found"):
        delta_rs_options(made(), TABLE)


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(module.metadata, "version", {"deltalake": version, "delta-spark": "4.4.0"}.__getitem__)


def test_delta_rs_writes_with_the_lock_where_it_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "1.6.0")
    found = delta_rs_options(made({**LOCK, "endpoint": ENDPOINT}), TABLE, writing=True)
    assert found["AWS_S3_LOCKING_PROVIDER"] == "dynamodb"
    assert found["DELTA_DYNAMO_TABLE_NAME"] == "delta_log"
    assert (found["AWS_ENDPOINT_URL_DYNAMODB"], found["AWS_ALLOW_HTTP"]) == (ENDPOINT, "true")
    assert "AWS_ENDPOINT_URL" not in found


@pytest.mark.parametrize("version", ["1.6.1", "1.6.6", "1.10.0", "2.0.0rc1"])
def test_a_delta_rs_that_ignores_the_lock_may_only_read(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, version)
    with pytest.raises(ConfigError, match=f"deltalake {version} ignores the lock table"):
        delta_rs_options(made(LOCK), TABLE, writing=True)
    assert delta_rs_options(made(LOCK), TABLE)


def test_nothing_is_written_where_nothing_keeps_writers_apart() -> None:
    with pytest.raises(ConfigError, match="nothing coordinates concurrent writers") as caught:
        delta_rs_options(made(), TABLE, writing=True)
    assert "commits:" in str(caught.value.hint)
    assert delta_rs_options(made(ALONE), TABLE, writing=True)


# ── nothing secret in sight ──────────────────────────────────────────────────────────────────────────────────────────


def leaks(text: object) -> list[str]:
    return [one for one in (KEY, SECRET, TOKEN) if one in str(text) or one in repr(text)]


def test_options_do_not_show_their_secrets() -> None:
    found = delta_rs_options(made(), TABLE)
    assert leaks(dict(found)) == [KEY, SECRET, TOKEN]  # the control: they are in it
    assert leaks(found) == []
    assert leaks(f"{found} {found!r} {[found]}") == []
    assert mask_secrets(found)["AWS_SECRET_ACCESS_KEY"] == MASK


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.hadoop.fs.s3a.bucket.b.session.token", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("AWS_SESSION_TOKEN", True),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName", False),
        ("AWS_REGION", False),
    ],
)
def test_which_settings_are_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@pytest.mark.parametrize("target", ["spark", "spark-submit", "databricks", "delta-rs"])
@pytest.mark.parametrize("commits", [None, ALONE, LOCK])
def test_show_shows_no_secret(target: str, commits: Any) -> None:
    found = show_settings(made(commits, endpoint=ENDPOINT), target, addresses=[TABLE])
    assert leaks(found.text) == []
    assert leaks(json.dumps(found.to_dict())) == []
    assert ENDPOINT in found.text
    assert ("a second writer" in found.text) == (commits is ALONE and target != "databricks")


def test_show_for_spark_submit() -> None:
    text = show_settings(made({**LOCK, "endpoint": "https://dynamodb.eu-west-1.example"}), "spark-submit").text
    assert f"--packages {','.join([delta_package(), *list_packages(made(LOCK))])} \\" in text
    assert "--conf spark.deltarelay.commits=dynamodb" in text
    assert "fileOverride=FOLDER/regions-" in text
    assert text.startswith("# delta-storage-s3-dynamodb is not in every registry")


def test_show_for_databricks_leaves_the_lock_out() -> None:
    text = show_settings(made(LOCK, credentials="profile:x"), "databricks").text
    assert "its own commit service" in text
    assert "logStore" not in text.replace("S3DynamoDBLogStore", "")
    assert "provider" not in text


def test_show_for_delta_rs_says_why_it_may_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "1.6.6")
    found = show_settings(made(LOCK), "delta-rs")
    assert "for reading only: deltalake 1.6.6 ignores the lock table" in found.text
    assert f"AWS_SECRET_ACCESS_KEY={MASK}" in found.text


def test_show_as_a_command(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(show_command)
    file = tmp_path / "deltarelay.yaml"
    file.write_text(
        "version: 1\nconnections: {w: {kind: postgres, dsn: x}}\n"
        "pipelines: {p: {source: {table: 's3://lake/t', key: [id]}, sink: {connection: w, table: t}}}\n"
        "storage: {s3: {region: eu-west-1, buckets: {other: {region: us-west-2}}}}\n"
    )
    done = CliRunner().invoke(app, ["--config", str(file), "--for", "delta-rs", "--json"])
    result = json.loads(done.output)["result"]
    assert (result["target"], result["settings"]["AWS_REGION"]) == ("delta-rs", "eu-west-1")
    assert leaks(done.output) == []
    done = CliRunner().invoke(app, ["--config", str(file), "--for", "delta-rs", "--table", "s3n://other/t"])
    assert "AWS_REGION=us-west-2" in done.output


# ── addresses that are typed ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("typed", ["s3://lake/t", "s3n://lake//t/", "S3A://lake/t"])
def test_a_typed_address_gets_the_one_spelling(typed: str) -> None:
    assert normalize_table(typed) == "s3a://lake/t"


def test_an_address_without_a_bucket_is_refused() -> None:
    assert normalize_table("./t") == "./t"
    with pytest.raises(ConfigError, match="has no bucket"):
        normalize_table("s3://")
    done = CliRunner().invoke(main_app, ["feed", "status", "s3:///t"])
    assert isinstance(done.exception, ConfigError)

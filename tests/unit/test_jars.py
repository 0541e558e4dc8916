"""Jars by path are judged by what is in them; what Maven left behind is seen before Ivy stumbles over it."""

from __future__ import annotations

import json
import re
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdf.errors import ConfigError
from infra.cli.main import app
from infra.config.load import load
from infra.config.models import storage_of
from infra.s3.model import Storage
from infra.s3.packages import hadoop_version, list_packages
from infra.spark.jars import examine_jars, find_cached_jars, find_incomplete_artifacts, ivy_folder, user_home
from infra.spark.session_builder import build_settings
from infra.spark_pairs import delta_artifacts, delta_package

VERSION = metadata.version("delta-spark")
SPARK_JAR = f"{delta_package().split(':')[1]}-{VERSION}.jar"
SPARK = "io/delta/sql/DeltaSparkSessionExtension.class"
STORAGE = "io/delta/storage/LogStore.class"
HADOOP = "org/apache/hadoop/fs/FileSystem.class"


def jar(file: Path, *classes: str, version: str | None = VERSION) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        if version is not None:
            archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\nImplementation-Version: {version}\r\n")
        for name in classes:
            archive.writestr(name, "")
    return file


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["jars", *words])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DELTARELAY_JARS", "DELTARELAY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path / 'home'}")
    return tmp_path


@pytest.fixture
def whole(here: Path) -> Path:
    jar(here / "jars" / SPARK_JAR, SPARK)
    jar(here / "jars" / f"delta-storage-{VERSION}.jar", STORAGE)
    return here / "jars"


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_with_all_that_is_needed(whole: Path) -> None:
    done = run("check", str(whole))
    assert done.exit_code == 0
    assert "complete" in done.output


def test_one_jar_with_everything_in_it(here: Path) -> None:
    assert examine_jars([jar(here / "all.jar", SPARK, STORAGE, version=None)]).problems == ()


@pytest.mark.parametrize(
    ("file", "classes", "version", "problem"),
    [
        ("other.jar", (SPARK,), "3.2.0", r"other\.jar is delta-spark 3\.2\.0, but 4\.4\.0 is required"),
        ("copy.jar", (STORAGE,), VERSION, r"delta-storage is present 2 times \(.*copy\.jar.*\): keep 4\.4\.0 only"),
        ("hadoop-client-api-3.4.2.jar", (HADOOP,), "3.4.2", "hadoop-client-api-3.4.2.jar contains a Hadoop client"),
        ("delta-spark_4.0_2.13-4.4.0.jar", (SPARK,), VERSION, "is built for another Spark: use the jar for 4.2_2.13"),
    ],
)
def test_what_must_not_be_in_it(whole: Path, file: str, classes: tuple[str, ...], version: str, problem: str) -> None:

    jar(whole / file, *classes, version=version)
    assert any(re.search(problem, one) for one in examine_jars(sorted(whole.glob("*.jar"))).problems)
    assert run("check", str(whole)).exit_code == 1


@pytest.mark.parametrize("artifact", [SPARK_JAR, f"delta-storage-{VERSION}.jar"])
def test_what_must_be_in_it(whole: Path, artifact: str) -> None:
    (whole / artifact).unlink()
    (whole / "something.jar").write_bytes((jar(whole.parent / "x.jar")).read_bytes())
    done = run("check", str(whole), "--json")
    assert done.exit_code == 1
    (problem,) = json.loads(done.output)["result"]["problems"]
    assert problem.startswith(f"{artifact} is missing")
    assert "deltarelay jars fetch" in problem


def test_a_jar_that_was_cut_off(whole: Path) -> None:
    jar_file = whole / SPARK_JAR
    jar_file.write_bytes(jar_file.read_bytes()[:100])
    assert "cannot be read as a jar" in examine_jars([jar_file]).problems[0]


def test_the_jars_of_the_environment_and_of_the_file(whole: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no jars are given by path"):
        raise run("check").exception
    monkeypatch.setenv("DELTARELAY_JARS", str(whole))
    assert run("check").exit_code == 0
    monkeypatch.delenv("DELTARELAY_JARS")
    (here / "deltarelay.yaml").write_text(
        "version: 1\nconnections: {w: {kind: postgres, dsn: x}}\n"
        "pipelines: {p: {source: {table: ./t, key: [id]}, sink: {connection: w, table: t}}}\njars: [jars]\n"
    )
    assert run("check").exit_code == 0


def test_a_folder_under_jars_reaches_spark(whole: Path, here: Path) -> None:
    """A relative one starts at the file's folder, as every path in it does."""
    file = here / "conf" / "my.yaml"
    file.parent.mkdir()
    file.write_text(
        "version: 1\nconnections: {w: {kind: postgres, dsn: x}}\n"
        "pipelines: {p: {source: {table: ./t, key: [id]}, sink: {connection: w, table: t}}}\njars: [../jars]\n"
    )
    chosen = build_settings("local[1]", jars=list(load(file).jars), environment={})
    assert chosen["spark.jars"].split(",") == sorted(map(str, whole.glob("*.jar")))
    assert "spark.jars.packages" not in chosen


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fill_ivy(home: Path) -> None:
    for name in (delta_package().split(":")[1], *delta_artifacts()):
        jar(ivy_folder(home) / "jars" / f"io.delta_{name}-{VERSION}.jar")
        description = ivy_folder(home) / "cache" / "io.delta" / name / f"ivy-{VERSION}.xml"
        description.parent.mkdir(parents=True)
        description.write_text("")


def test_nothing_is_here_yet() -> None:
    done = run("list")
    assert done.exit_code == 0
    assert delta_package() in done.output
    assert "not on this machine yet" in done.output


def test_what_ivy_has_fetched(here: Path) -> None:
    fill_ivy(here / "home")
    result = json.loads(run("list", "--json").output)["result"]
    assert (result["package"], result["origin"], len(result["jars"])) == (
        delta_package(),
        "ivy",
        1 + len(delta_artifacts()),
    )
    assert all(one["bytes"] > 0 for one in result["jars"])


def test_a_part_of_it_is_not_enough(here: Path) -> None:
    fill_ivy(here / "home")
    (ivy_folder(here / "home") / "jars" / f"io.delta_delta-storage-{VERSION}.jar").unlink()
    assert find_cached_jars(ivy_folder(here / "home")) == []


def test_jars_by_path_are_listed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTARELAY_JARS", str(whole))
    result = json.loads(run("list", "--json").output)["result"]
    assert (result["origin"], len(result["jars"])) == ("path", 2)


# ── what Maven left behind ───────────────────────────────────────────────────────────────────────────────────────────


def described(home: Path, group: str, artifact: str, version: str, *, text: str = "<project/>") -> Path:
    folder = home / ".m2" / "repository" / group / artifact / version
    folder.mkdir(parents=True)
    (folder / f"{artifact}-{version}.pom").write_text(text)
    return folder


def test_a_description_without_its_jar(here: Path) -> None:
    folder = described(here, "io/delta", "delta-storage", VERSION)
    other = described(here, "org/antlr", "antlr4-runtime", "4.9.3")
    assert [(one.folder, one.certain) for one in find_incomplete_artifacts(here)] == [(folder, True), (other, False)]


def test_what_does_no_harm(here: Path) -> None:
    whole = described(here, "io/delta", "delta-storage", VERSION)
    (whole / f"delta-storage-{VERSION}.jar").write_text("")
    described(here, "io/delta", "delta-kernel-api", "1.0.0")
    described(here, "org/antlr", "antlr-master", "4.9.3", text="<project><packaging>\npom </packaging></project>")
    described(here, "org/example", "something", "1")
    assert find_incomplete_artifacts(here) == []


def test_the_home_is_javas(here: Path) -> None:
    assert user_home({"HOME": "/somewhere/else"}) != Path("/somewhere/else")
    assert user_home({"JAVA_TOOL_OPTIONS": "-Xmx1g -Duser.home=/jvm"}) == Path("/jvm")


# ── S3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

S3A = "org/apache/hadoop/fs/s3a/S3AFileSystem.class"
SDK = [
    "software/amazon/awssdk/services/s3/S3Client.class",
    "software/amazon/awssdk/transfer/s3/S3TransferManager.class",
    "software/amazon/awssdk/http/apache/ApacheHttpClient.class",
    "software/amazon/awssdk/http/nio/netty/NettyNioAsyncHttpClient.class",
]
ON_S3 = (
    "version: 1\nconnections: {w: {kind: postgres, dsn: x}}\n"
    "pipelines: {p: {source: {table: s3a://lake/t, key: [id]}, sink: {connection: w, table: t}}}\n"
    "storage: {s3: {region: eu-west-1, credentials: env}}\n"
)


@pytest.fixture
def on_s3(here: Path) -> Storage:
    (here / "deltarelay.yaml").write_text(ON_S3)
    return load(here / "deltarelay.yaml").storage


def test_tables_on_s3_need_more_jars(whole: Path, on_s3: Storage) -> None:
    problems = examine_jars(sorted(whole.glob("*.jar")), on_s3).problems
    assert len(problems) == 5
    assert f"hadoop-aws-{hadoop_version()}.jar, for tables on S3, is missing" in problems[0]
    assert run("check", str(whole)).exit_code == 1
    jar(whole / "bundle.jar", *SDK, version="2.35.4")
    jar(whole / "aws.jar", S3A, version=hadoop_version())
    assert examine_jars(sorted(whole.glob("*.jar")), on_s3).problems == ()
    assert run("check", str(whole)).exit_code == 0


def test_a_hadoop_aws_of_another_hadoop(whole: Path, on_s3: Storage) -> None:
    jar(whole / "aws.jar", S3A, version="3.3.4")
    problems = examine_jars(sorted(whole.glob("*.jar")), on_s3).problems
    assert any("aws.jar is hadoop-aws 3.3.4, but PySpark contains Hadoop" in one for one in problems)


def test_a_log_store_that_is_missing_says_where_else_it_may_come_from(whole: Path) -> None:
    locked = Storage.model_validate({"s3": {"region": "eu-west-1"}, "commits": {"kind": "dynamodb"}})
    problems = examine_jars(sorted(whole.glob("*.jar")), locked).problems
    (told,) = [one for one in problems if one.startswith("delta-storage-s3-dynamodb")]
    assert "not every registry has" in told


def test_ivy_has_to_have_those_for_s3_too(here: Path, on_s3: Storage) -> None:
    fill_ivy(here / "home")
    ivy = ivy_folder(here / "home")
    assert find_cached_jars(ivy)
    assert find_cached_jars(ivy, on_s3) == []
    result = json.loads(run("list", "--json").output)["result"]
    assert (result["origin"], result["s3_packages"]) == ("none", list_packages(on_s3))


def test_who_uses_s3(here: Path, on_s3: Storage) -> None:
    assert storage_of(load(here / "deltarelay.yaml")) == on_s3
    local = ON_S3.replace("s3a://lake/t", "./t")
    (here / "deltarelay.yaml").write_text(local)
    assert storage_of(load(here / "deltarelay.yaml")) == on_s3
    (here / "deltarelay.yaml").write_text(local.partition("storage:")[0])
    project = load(here / "deltarelay.yaml")
    assert storage_of(project) is None
    assert storage_of(project, ["s3a://lake/t"]) == Storage()
    assert storage_of(None, ["./t"]) is None

"""The archive of Spark's classes is used only where it fits, and only where no other user can have written it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cdf.errors import ConfigError
from infra.diagnostics.doctor.machine import Machine, check_java
from infra.spark import class_archive
from infra.spark.archive_writer import write_archive
from infra.spark.class_archive import archive_file, archive_options, find_archive
from infra.spark.java import Java
from infra.spark.resolved_jars import cache_folder
from tests.fixtures.setups import java_that_says


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark.jar").write_bytes(b"12345")
    return Java(java_that_says(tmp_path / "java", "17.0.15") / "java", "17.0.15", 17)


@pytest.fixture
def archive(java: Java) -> Path:
    file = archive_file(java)
    file.parent.mkdir(mode=0o700, parents=True)
    file.touch(mode=0o444)
    return file


def test_an_archive_that_fits_is_used_without_a_word(java: Java, archive: Path) -> None:
    assert find_archive(java) == archive
    options = archive_options(java, {})
    assert options.startswith(f'"-XX:SharedArchiveFile={archive}" -Xshare:auto ')
    assert "-Xlog:cds=off" in options


def test_there_is_none_without_an_error(java: Java, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert archive_options(java, {}) == ""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    assert archive_options(java, {}) == ""


def test_another_java_spark_or_delta_has_another(java: Java, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_archive(replace(java, version="17.0.16")) is None
    jar = class_archive._spark_folder() / "jars" / "spark.jar"
    status = jar.stat()
    jar.write_bytes(b"54321")
    assert find_archive(java) is None
    os.utime(jar, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert find_archive(java) == archive
    monkeypatch.setattr(class_archive, "delta_package", lambda: "io.delta:another:1")
    assert find_archive(java) is None


def test_what_others_may_write_is_not_used(java: Java, archive: Path) -> None:
    archive.chmod(0o664)
    assert find_archive(java) is None
    archive.chmod(0o444)
    cache_folder().chmod(0o777)
    assert find_archive(java) is None
    cache_folder().chmod(0o700)
    assert find_archive(java) == archive
    archive.rename(archive.with_suffix(".other"))
    archive.symlink_to(archive.with_suffix(".other"))
    assert find_archive(java) is None


@pytest.mark.parametrize("option", ["-XX:SharedArchiveFile=/a", "-Xshare:off", "-XX:ArchiveClassesAtExit=/a"])
def test_the_choice_of_the_user_is_kept(
    java: Java, archive: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive_options(java, {"spark.driver.extraJavaOptions": f"-Dx=y {option}"}) == ""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", option)
    assert archive_options(java, {}) == ""


def test_the_doctor_says_whether_there_is_one(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(environment={"JAVA_HOME": str(java.program.parents[1])})
    assert "`deltarelay jars archive`" in check_java(machine).found
    file = archive_file(java)
    file.parent.mkdir(mode=0o700, parents=True)
    file.touch(mode=0o444)
    assert check_java(machine).found.endswith("with an archive of Spark's classes")


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_a_folder_of_settings_on_the_class_path_is_refused_before_spark_starts(
    name: str, java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").touch()
    monkeypatch.setenv(name, str(settings))
    with pytest.raises(ConfigError, match=f"no classes while {name} names a folder with files"):
        write_archive(java, tmp_path / "log")

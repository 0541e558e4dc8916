"""The broker's jars are fetched once, whole or not at all, from where Spark's settings say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdf.errors import ConfigError
from infra.embedded.kafka import EmbeddedKafka
from infra.embedded.kafka_jars import jar_folder, kafka_jars
from infra.spark.java import find_java
from tests.fixtures.fix_kafka import JAVA_OPTIONS
from tests.fixtures.fix_spark import cannot_run, missing_service

DIRECT = ["kafka_2.13-4.2.0.jar", "log4j-core-2.25.3.jar", "log4j-slf4j-impl-2.25.3.jar"]
"""What is asked for by name. The registries here know of no more: they are folders with nothing but jars."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without any jar, and Spark settings without any word."""
    if find_java() is None:
        cannot_run("Java is missing, and with it Ivy")
    for name in ("SPARK_CONF_DIR", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "deltarelay"


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """Three jars for Ivy to find. What is in them does not matter to it."""
    folder = tmp_path / "registry"
    folder.mkdir()
    for name in DIRECT:
        (folder / name).write_bytes(name.encode() * 100)
    return folder


def ivy_settings(folder: Path) -> Path:
    file = folder.with_suffix(".xml")
    file.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">'
        f'<artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    return file


def test_all_or_nothing_and_only_once(cache: Path, registry: Path) -> None:
    conf = {"spark.jars.ivySettings": str(ivy_settings(registry))}
    jars = kafka_jars(conf)
    assert [jar.name for jar in jars] == DIRECT
    assert {jar.parent for jar in jars} == {jar_folder()} == {cache / "kafka-4.2.0"}
    shutil.rmtree(registry)
    assert kafka_jars(conf) == jars
    assert sorted(file.name for file in cache.iterdir()) == ["kafka-4.2.0", "kafka-4.2.0.lock"]


def test_a_damaged_folder_is_repaired(cache: Path, registry: Path) -> None:
    conf = {"spark.jars.ivySettings": ivy_settings(registry).as_uri()}
    first, second, _ = kafka_jars(conf)
    (cache / "fetching-kafka-4.2.0-killed").mkdir()
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    assert [jar.read_bytes() for jar in kafka_jars(conf)] == [(registry / name).read_bytes() for name in DIRECT]
    assert sorted(file.name for file in cache.iterdir()) == ["kafka-4.2.0", "kafka-4.2.0.lock"]


def test_a_registry_without_them(cache: Path, registry: Path) -> None:
    conf = {"spark.jars.ivySettings": str(ivy_settings(registry))}
    kafka_jars(conf)
    (jar_folder() / DIRECT[1]).unlink()
    (registry / DIRECT[1]).unlink()
    with pytest.raises(
        ConfigError, match=r"could not be fetched: org\.apache\.logging\.log4j:log4j-core:2\.25\.3"
    ) as told:
        kafka_jars(conf)
    assert str(jar_folder()) in str(told.value.hint)
    log = cache / "kafka-4.2.0.log"
    assert str(log) in str(told.value.hint)
    assert log.is_file()
    assert (jar_folder() / DIRECT[0]).is_file()  # what is there already is not thrown away


def test_jars_put_there_by_hand(cache: Path, registry: Path) -> None:
    cache.mkdir(parents=True)
    shutil.copytree(registry, jar_folder())
    assert [jar.name for jar in kafka_jars({"spark.jars.ivySettings": "/nowhere"})] == DIRECT


def test_a_settings_file_that_is_not_there(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"ivySettings: /nowhere does not exist"):
        kafka_jars({"spark.jars.ivySettings": "/nowhere"})


def test_repositories_of_spark_defaults(cache: Path, registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a company's network: Maven's own registry does not answer, and the next in the list does."""
    maven = registry.parent / "maven"
    for name in DIRECT:
        artifact, version = name.removesuffix(".jar").rsplit("-", 1)
        group = "org.apache.kafka" if artifact.startswith("kafka") else "org.apache.logging.log4j"
        folder = maven / group.replace(".", "/") / artifact / version
        folder.mkdir(parents=True)
        shutil.copy(registry / name, folder)
        (folder / f"{artifact}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
            f"<artifactId>{artifact}</artifactId><version>{version}</version></project>"
        )
    settings = registry.parent / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        f"# ours\nspark.driver.memory 1g\nspark.jars.repositories  {(maven / 'none').as_uri()},{maven.as_uri()}\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    assert [jar.read_bytes() for jar in kafka_jars()] == [(registry / name).read_bytes() for name in DIRECT]


def test_two_processes_at_once(cache: Path, registry: Path) -> None:
    settings = ivy_settings(registry)
    script = (
        "from infra.embedded.kafka_jars import *\n"
        f"jars = kafka_jars({{'spark.jars.ivySettings': {str(settings)!r}}})\n"
        "print(jar_folder().stat().st_ino, [jar.name for jar in jars])"
    )
    several = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {one.communicate(timeout=120)[0].strip() for one in several}
    assert said == {f"{jar_folder().stat().st_ino} {DIRECT}"}  # one of them fetched, and the other waited


def test_a_broker_from_the_registry(tmp_path: Path, kafka_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing, by whatever settings this machine has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        kafka_jars()
    except ConfigError as error:
        missing_service("the registry", error)
    with EmbeddedKafka(kafka_folder / "fetched", java_options=JAVA_OPTIONS) as server:
        assert server.running()
    assert len(list(jar_folder().glob("*.jar"))) > 40

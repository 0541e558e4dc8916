"""Finding and judging Java, with scripts that play it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdf.errors import ConfigError
from infra.spark.java import explain_failed_start, find_java, parse_version, require_java
from infra.spark_pairs import installed_pair

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)'


def make_java(folder: Path, says: str, *, status: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{says}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (OPENJDK_17, ("17.0.15", 17)),
        ('openjdk version "21" 2023-09-19', ("21", 21)),
        ('java version "1.8.0_381"', ("1.8.0_381", 8)),
        ('openjdk version "25-ea" 2025-09-16', ("25-ea", 25)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', ("11.0.2", 11)),
        ("The operation could not be completed. Unable to locate a Java Runtime.", None),
        ('version "unknown"', None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_says(says: str, expected: tuple[str, int] | None) -> None:
    assert parse_version(says) == expected


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    at_home = make_java(tmp_path / "home", OPENJDK_17)
    on_path = make_java(tmp_path / "other", 'openjdk version "21.0.1"')
    both = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    found = find_java(both)
    assert found is not None
    assert (found.program, found.release) == (at_home, 17)
    found = find_java({**both, "JAVA_HOME": ""})
    assert found is not None
    assert (found.program, found.release) == (on_path, 21)


def test_no_java_at_all() -> None:
    assert find_java({"PATH": ""}) is None
    with pytest.raises(ConfigError, match="Java is not installed") as caught:
        require_java({"PATH": ""})
    assert caught.value.hint is not None
    assert "openjdk-17" in caught.value.hint


def test_the_placeholder_of_macos_is_no_java(tmp_path: Path) -> None:
    program = make_java(tmp_path, "Unable to locate a Java Runtime.", status=1)
    assert find_java({"PATH": str(program.parent)}) is None


@pytest.mark.parametrize("version", ["1.8.0_381", "11.0.2", "18", "25.0.1"])
def test_a_java_that_spark_is_not_made_for(tmp_path: Path, version: str) -> None:
    program = make_java(tmp_path, f'openjdk version "{version}"')
    with pytest.raises(ConfigError, match=f"Spark {installed_pair().line} and Delta need Java 17") as caught:
        require_java({"PATH": str(program.parent)})
    assert version in caught.value.message
    assert "\n" not in caught.value.message


def test_a_java_home_without_java_is_not_passed_over(tmp_path: Path) -> None:
    on_path = make_java(tmp_path / "other", OPENJDK_17)
    with pytest.raises(ConfigError, match="no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(on_path.parent)})


def test_a_java_home_that_does_not_answer(tmp_path: Path) -> None:
    make_java(tmp_path, "Error: could not find libjava.so", status=2)
    with pytest.raises(ConfigError, match="does not print its version"):
        find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'Exception in thread "main" java.lang.RuntimeException: '
            "[unresolved dependency: io.nowhere#nothing_2.13;0.0.1: not found]",
            "the jars that Spark needs could not be fetched: io.nowhere:nothing_2.13:0.0.1",
        ),
        (
            'Exception in thread "main" java.lang.RuntimeException: [download failed: a.b#c;1.0!c.jar]',
            "the jars that Spark needs could not be fetched: a.b:c:1.0",
        ),
        (
            'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or local\n\tat a.b(C)',
            "Spark's Java process did not start: Master must be yarn or local",
        ),
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for 900KB object heap",
            "Spark's Java process did not start: Could not reserve enough space for 900KB object heap",
        ),
        ("java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main", "Java is too old for Spark"),
        ("", "Spark's Java process did not start"),
    ],
)
def test_the_reason_is_found_in_what_spark_said(said: str, message: str) -> None:
    error = explain_failed_start(said, "spark.log")
    assert error.message == message
    assert error.hint

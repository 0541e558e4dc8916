"""Which jars Ivy has resolved is remembered for exactly these settings and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spark.resolved_jars import cache_folder, find_resolved_jars, keep_resolved_jars, use_jars

SETTINGS = {"spark.jars.packages": "io.delta:delta:1", "spark.jars.excludes": "x:y", "spark.master": "local"}


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = [tmp_path / "a b.jar", tmp_path / "c.jar"]
    for file in files:
        file.write_bytes(b"12345")
    return files


def test_they_are_found_for_the_same_settings_only(jars: list[Path]) -> None:
    assert find_resolved_jars(SETTINGS) == []
    keep_resolved_jars(SETTINGS, [jars[0].as_uri(), str(jars[1])])
    assert find_resolved_jars(SETTINGS) == [str(jars[0]), str(jars[1])]
    assert find_resolved_jars({**SETTINGS, "spark.master": "local[2]"}) == [str(jars[0]), str(jars[1])]
    for name in ("spark.jars.packages", "spark.jars.excludes", "spark.jars.ivy", "spark.jars.repositories"):
        assert find_resolved_jars({**SETTINGS, name: "other"}) == []
    assert use_jars({**SETTINGS, "spark.jars": "d.jar"}, ["a.jar", "c.jar"]) == {
        "spark.master": "local",
        "spark.jars.packages": "",
        "spark.jars.excludes": "",
        "spark.jars": "a.jar,c.jar,d.jar",
    }


def test_a_jar_that_is_gone_or_has_changed_is_resolved_again(jars: list[Path]) -> None:
    keep_resolved_jars(SETTINGS, [str(jars[0]), str(jars[1])])
    jars[1].write_bytes(b"123456")
    assert find_resolved_jars(SETTINGS) == []
    keep_resolved_jars(SETTINGS, [str(jars[0]), str(jars[1])])
    assert len(find_resolved_jars(SETTINGS)) == 2
    jars[0].unlink()
    assert find_resolved_jars(SETTINGS) == []


def test_a_file_that_is_damaged_or_that_others_may_write_is_ignored(jars: list[Path]) -> None:
    keep_resolved_jars(SETTINGS, [str(jars[0])])
    cache_folder().chmod(0o777)
    assert find_resolved_jars(SETTINGS) == []
    cache_folder().chmod(0o755)
    assert find_resolved_jars(SETTINGS) == [str(jars[0])]
    (file,) = cache_folder().glob("*.json")
    for text in ("[]", "{", '{"x": 1}', "1"):
        file.write_text(text)
        assert find_resolved_jars(SETTINGS) == []


def test_what_cannot_be_kept_is_no_error(jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for elsewhere in (f"hdfs://name{jars[0]}", "", ""):
        keep_resolved_jars(SETTINGS, [str(jars[1]), elsewhere])
        assert find_resolved_jars(SETTINGS) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(jars[0]))
    keep_resolved_jars(SETTINGS, [str(jars[1])])
    assert find_resolved_jars(SETTINGS) == []

"""What monitoring remembers: beside the position, in a file while the target is unreachable, and never two truths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdf.errors import SinkUnavailable
from cdf.sink import Controls
from cdf.sink.controls import clear_stop
from infra.monitoring.memory import Memory


class Target:
    """A configuration with one pipeline, and a sink that stores decisions."""

    def __init__(self) -> None:
        self.stored, self.is_reachable, self.writes = Controls(), True, 0

    def build_sink(self, _name: str) -> Target:
        return self

    def pipeline(self, _name: str) -> Any:
        class Settings:
            class source:  # noqa: N801
                table = "/data/customers"

            class sink:  # noqa: N801
                connection = "warehouse"

        return Settings

    def targets(self) -> dict[str, str]:
        return {"customers": "public.customers of warehouse (postgres)"}

    def controls(self) -> Controls:
        if not self.is_reachable:
            raise SinkUnavailable("no answer")
        return self.stored

    def change_controls(self, change: Any) -> Controls:
        self.writes += 1
        self.stored = Controls.from_document(change(self.controls()).to_document())
        return self.stored


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("infra.monitoring.memory._away_until", {})
    monkeypatch.setattr("infra.monitoring.memory.AWAY_SECONDS", 0)
    return Target()


def open_memory(target: Any) -> Memory:
    return Memory(target, "customers", "test")


def add(name: str) -> Any:
    return lambda content: {**content, name: 1}


def remove(name: str) -> Any:
    return lambda content: {key: value for key, value in content.items() if key != name}


def read(content: Mapping[str, Any]) -> Mapping[str, Any]:
    return content


def test_it_is_stored_beside_the_position_and_only_changes_are_written(target: Target, tmp_path: Path) -> None:
    assert open_memory(target).change(add("a")) == {"a": 1}
    assert open_memory(target).change(add("a")) == {"a": 1}
    assert (target.stored.monitoring, target.writes) == ({"test": {"a": 1}}, 1)
    assert list(tmp_path.rglob("*.json")) == []
    assert clear_stop(target.stored, 5).monitoring == {"test": {"a": 1}}


def test_while_the_target_is_unreachable_other_processes_read_the_file_which_is_merged_later(
    target: Target, tmp_path: Path
) -> None:
    memory = open_memory(target)
    memory.change(lambda _: {"a": 1, "b": 1})
    target.is_reachable = False
    assert memory.change(add("c")) == {"a": 1, "b": 1, "c": 1}
    assert open_memory(target).change(remove("a")) == {"b": 1, "c": 1}  # another process
    target.is_reachable = True
    assert open_memory(target).change(read) == {"b": 1, "c": 1}
    assert target.stored.monitoring == {"test": {"b": 1, "c": 1}}
    assert list(tmp_path.rglob("*.json")) == []


def test_without_a_writable_folder_the_process_itself_remembers(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    target.is_reachable = False
    memory = open_memory(target)
    memory.change(add("a"))
    assert memory.change(read) == {"a": 1}

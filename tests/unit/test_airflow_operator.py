"""The operator for Airflow, with small classes instead of those of Airflow. With Airflow: tests/soak/test_airflow.py"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "infra" / "deploy" / "airflow" / "deltarelay_airflow.py"


class Deferred(Exception):
    """What deferring raises."""


class Base:
    def __init__(self, **_: object) -> None:
        self.log = logging.getLogger("airflow.task")

    def defer(self, **_: object) -> None:
        raise Deferred


class Failed(Exception):
    """Stands for AirflowException."""


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = {
        "airflow": (),
        "airflow.sdk": ("BaseOperator", "BaseSensorOperator"),
        "airflow.sdk.exceptions": ("AirflowException", "AirflowFailException"),
        "airflow.triggers": (),
        "airflow.triggers.base": ("BaseEventTrigger", "BaseTrigger", "TriggerEvent"),
    }
    for name, parts in names.items():
        module = ModuleType(name)
        for part in parts:
            setattr(module, part, Failed if part.endswith("Exception") else Base)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("deltarelay_airflow", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(operators: Any, folder: Path, code: int, *entries: dict[str, Any]) -> Any:
    program = folder / "deltarelay"
    (folder / "printed.json").write_text(json.dumps({"result": {"pipelines": entries}}))
    program.write_text(f"#!/bin/sh\ncat {folder}/printed.json\nexit {code}\n")
    program.chmod(0o755)
    return operators.DeltaRelayOperator(program=str(program)).execute(None)


PAUSED = {"pipeline": "a", "ok": True, "error": {"code": "paused", "message": "a is paused"}}
HELD = {"pipeline": "b", "ok": False, "error": {"code": "lease_held", "message": "held"}}
AWAY = {"pipeline": "c", "ok": False, "error": {"code": "sink_unavailable", "message": "no answer"}}


def test_a_paused_pipeline_is_no_error(operators: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "airflow.task"):
        assert run(operators, tmp_path, 0, PAUSED, {"pipeline": "d", "ok": True, "position": 4}) == {"a": None, "d": 4}
        assert caplog.messages == []
        with pytest.raises(Deferred):
            run(operators, tmp_path, 75, PAUSED, HELD)
        with pytest.raises(Failed, match="exit code 75"):
            run(operators, tmp_path, 75, PAUSED, HELD, AWAY)
    assert caplog.messages == ["held (lease_held)", "held (lease_held)", "no answer (sink_unavailable)"]

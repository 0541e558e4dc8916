"""Each alert rule as promtool evaluates it: it fires after its time and not before, and stays silent below its limit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.fixtures.fix_prometheus import PrometheusPrograms

RULES = Path(__file__).parents[2] / "infra" / "deploy" / "prometheus" / "alerts.yaml"
RUNNING = "x120"
"""As many further samples, one a minute."""


@dataclass(frozen=True, slots=True)
class Case:
    firing: dict[str, str]
    """Series, which begin at minute 0; their pipeline is named people."""
    minutes: int
    """It fires at this minute, and not at the one before."""
    silent: dict[str, str]
    """Series that fire nothing."""
    value: str = ""
    """How the message shows the value."""
    labels: tuple[tuple[str, str], ...] = (("pipeline", "people"),)
    """Of the alert, besides those of its rule."""


def judge_state(state: str, minutes: int) -> Case:
    firing = {f'deltarelay_state{{pipeline="people",state="{state}"}}': f"1+0{RUNNING}"}
    silent = {
        f'deltarelay_state{{pipeline="calm",state="{state}"}}': f"0+0{RUNNING}",
        'deltarelay_state{pipeline="calm",state="up_to_date"}': f"1+0{RUNNING}",
        # Over again before its time
        f'deltarelay_state{{pipeline="brief",state="{state}"}}': f"1+0x{minutes - 1} 0+0{RUNNING}",
    }
    return Case(firing, minutes, silent, labels=(("pipeline", "people"), ("state", state)))


def judge_value(metric: str, above: str, below: str, *, minutes: int, shown: str, pausable: bool = False) -> Case:
    silent = {f'{metric}{{pipeline="calm"}}': f"{below}{RUNNING}"}
    if pausable:
        silent[f'{metric}{{pipeline="resting"}}'] = f"{above}{RUNNING}"
        silent['deltarelay_state{pipeline="resting",state="paused"}'] = f"1+0{RUNNING}"
    return Case({f'{metric}{{pipeline="people"}}': f"{above}{RUNNING}"}, minutes, silent, shown)


CASES = {
    "DeltarelayFailed": judge_state("failed", 5),
    "DeltarelayUnreachable": judge_state("unreachable", 10),
    "DeltarelayStuck": judge_state("stuck", 1),
    "DeltarelayStoppedByBrake": judge_state("stopped_by_brake", 1),
    "DeltarelayLagging": judge_value(
        "deltarelay_lag_seconds", "901+0", "900+0", minutes=5, shown="15m 1s", pausable=True
    ),
    "DeltarelayFeedExpiring": judge_value(
        "deltarelay_feed_expires_seconds", "172799+0", "172800+0", minutes=5, shown="1d 23h 59m 59s"
    ),
    # The last success of `people` was at minute 0, that of `calm` is always now
    "DeltarelayStale": judge_value(
        "deltarelay_last_success_timestamp_seconds",
        "0+0",
        "0+60",
        minutes=66,
        shown="1h 6m 0s",
        pausable=True,
    ),
    "DeltarelayDeadLetters": judge_value("deltarelay_dead_letters", "3+0", "0+0", minutes=5, shown="3"),
    "DeltarelayNotAnchored": judge_value("deltarelay_unanchored_commits", "2+0", "0+0", minutes=60, shown="2"),
    # Every runner reports the same requests: one alert
    "DeltarelayErasureOverdue": Case(
        {
            'deltarelay_erasures_overdue{instance="a"}': f"2+0{RUNNING}",
            'deltarelay_erasures_overdue{instance="b"}': f"2+0{RUNNING}",
        },
        5,
        {'deltarelay_erasures_overdue{instance="c"}': f"0+0{RUNNING}"},
        "2",
        (),
    ),
}


def read_rules() -> dict[str, Any]:
    rules = YAML(typ="safe").load(RULES)["groups"][0]["rules"]
    return {rule["alert"]: rule for rule in rules}


def build_test(alert: str, rule: dict[str, Any], case: Case) -> list[dict[str, Any]]:
    labels = {**rule["labels"], **dict(case.labels)}
    annotations = {}
    for name, text in rule["annotations"].items():
        for template, value in (
            ("{{ $labels.pipeline }}", "people"),
            ("{{ $value | humanizeDuration }}", case.value),
            ("{{ $value }}", case.value),
        ):
            text = text.replace(template, value)
        annotations[name] = text
    expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    series = [{"series": name, "values": values} for name, values in {**case.firing, **case.silent}.items()]
    silent = [{"series": name, "values": values} for name, values in case.silent.items()]
    never = [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []} for minute in (1, case.minutes, 110)]
    around = [
        {"eval_time": f"{case.minutes - 1}m", "alertname": alert, "exp_alerts": []},
        {"eval_time": f"{case.minutes}m", "alertname": alert, "exp_alerts": expected},
    ]
    return [
        {"interval": "1m", "input_series": series, "alert_rule_test": around},
        {"interval": "1m", "input_series": silent, "alert_rule_test": never},
    ]


def run_tests(programs: PrometheusPrograms, folder: Path, rules: Path, tests: list[dict[str, Any]]) -> tuple[int, str]:
    file = folder / "tests.yaml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    return programs.check("test", "rules", file)


def test_promtool_accepts_the_rules_and_each_one_has_a_case(prometheus_programs: PrometheusPrograms) -> None:
    code, said = prometheus_programs.check("check", "rules", RULES)
    assert (code, "SUCCESS: 10 rules found" in said) == (0, True), said
    assert list(CASES) == list(read_rules())


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_after_its_time_and_only_then(
    alert: str, prometheus_programs: PrometheusPrograms, tmp_path: Path
) -> None:
    tests = build_test(alert, read_rules()[alert], CASES[alert])
    code, said = run_tests(prometheus_programs, tmp_path, RULES, tests)
    assert code == 0, said


def test_a_rule_with_another_limit_time_or_text_fails(prometheus_programs: PrometheusPrograms, tmp_path: Path) -> None:
    alert, text = "DeltarelayLagging", RULES.read_text()
    tests = build_test(alert, read_rules()[alert], CASES[alert])
    for number, (right, wrong) in enumerate(
        (
            ("lag_seconds > 900", "lag_seconds >= 900"),
            ("lag_seconds > 900", "lag_seconds > 901"),
            ("lag_seconds > 900 unless on (pipeline)", "lag_seconds > 900 or on (pipeline)"),
            ("is {{ $value | humanizeDuration }} old", "is {{ $value }} old"),
        )
    ):
        assert right in text
        broken = tmp_path / f"{number}.yaml"
        broken.write_text(text.replace(right, wrong))
        assert run_tests(prometheus_programs, tmp_path, broken, tests)[0] == 1, wrong

"""Alert rules and dashboard: each metric, label and value of a label that they name is one that the product has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.monitoring.metric_names import METRICS, STATES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "deploy" / "prometheus"
LABELS = {metric.name: {*metric.labels} for metric in METRICS} | {
    "deltarelay_window_seconds_bucket": {"pipeline", "step", "le"}
}


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


RULES = read(FOLDER / "alerts.yaml")["groups"][0]["rules"]
PANELS = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
QUERIES = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]


def find_faults(query: str) -> list[str]:
    faults = []
    for name, selector in re.findall(r"(deltarelay_\w+)(?:\{([^}]*)\})?", query):
        if name not in LABELS:
            faults.append(name)
            continue
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            if label not in LABELS[name] or (label == "state" and value not in STATES):
                faults.append(f"{name} {label} {value}")
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
            faults += [
                f"{name} {label}" for label in group.split(", ") if label not in LABELS[name] and label != "state"
            ]
    if query.count("(") != query.count(")") or query.count("{") != query.count("}"):
        faults.append("brackets")
    return faults


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_what_the_product_has(query: str) -> None:
    assert "deltarelay_" in query
    assert find_faults(query) == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("deltarelay_lag > 1", "deltarelay_lag"),
        ('deltarelay_state{state="broken"} == 1', "deltarelay_state state broken"),
        ('deltarelay_lag_seconds{table="x"} > 1', "deltarelay_lag_seconds table x"),
        ("sum by (schema) (deltarelay_lag_seconds)", "deltarelay_lag_seconds schema"),
        ("sum(deltarelay_lag_seconds", "brackets"),
    ],
)
def test_the_check_finds_what_is_wrong(query: str, fault: str) -> None:
    assert find_faults(query) == [fault]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [metric.name for metric in METRICS if metric.name not in shown] == []
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_each_alert_leads_to_a_section_of_the_runbook() -> None:
    page = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
    sections = {re.sub(r" \{.*", "", title).replace(" ", "-") for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    named = [rule["annotations"]["runbook_url"] for rule in RULES]
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 10
    for url in named:
        file, _, anchor = url.partition("#")
        assert (file, anchor in sections) == ("docs/how-to/runbook.md", True), url


def test_the_pod_monitor_selects_the_follower_and_its_port() -> None:
    monitor = read(FOLDER / "pod-monitor.yaml")["spec"]
    follower = read(ROOT / "infra" / "deploy" / "kubernetes" / "follower.yaml")["spec"]["template"]
    labels = monitor["selector"]["matchLabels"]
    assert labels.items() <= follower["metadata"]["labels"].items()
    (container,) = follower["spec"]["containers"]
    assert [port["name"] for port in container["ports"]] == [one["port"] for one in monitor["podMetricsEndpoints"]]
    port = container["args"][container["args"].index("--metrics-port") + 1]
    assert port == str(container["ports"][0]["containerPort"])

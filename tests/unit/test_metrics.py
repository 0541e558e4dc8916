"""Metrics over HTTP and in a text file: exact values, no row value. A real table and HTTP server; the sink is a fake."""

from __future__ import annotations

import datetime as dt
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client.parser import text_string_to_metric_families

from cdf.errors import BrakeStopped, ConfigError, SinkUnavailable
from cdf.results import Step
from cdf.sink import Activity, Applied, Position
from infra.cli.main import main
from infra.config.load import load
from infra.config.models import Project
from infra.monitoring.metric_names import METRICS
from infra.monitoring.metrics import MetricsObserver
from infra.monitoring.metrics_server import ServedMetrics

ROWS = pa.table({"id": pa.array([1], pa.int64()), "name": ["planted-value"]})
SECRET = "planted-secret"
Samples = dict[tuple[str, ...], float]
WINDOW = Step("window", 1, 2, 2, Applied(2, inserts=3, updates=2, deletes=1, seconds={"stage": 0.2, "apply": 0.4}))
COPY = Step("load", 0, 0, 2, Applied(0, inserts=7, seconds={"copy": 2.0}))


class Target:
    """What ``status`` needs of a sink."""

    def __init__(self) -> None:
        self.seen = Activity()
        self.delay = threading.Event()
        self.delay.set()

    def position(self) -> Position:
        return self.activity().position

    def activity(self) -> Activity:
        self.delay.wait(30)
        return self.seen


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A table at version 0, a configuration, and a target that is at this version."""
    write_deltalake(tmp_path / "people", ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    (tmp_path / "deltarelay.yaml").write_text(
        "version: 1\n"
        "connections: {warehouse: {kind: postgres, dsn: '${DSN}'}}\n"
        "pipelines: {people: {source: {table: ./people, key: [id]}, sink: {connection: warehouse, table: people}}}\n"
    )
    monkeypatch.setenv("DSN", f"postgresql://me:{SECRET}@127.0.0.1:1/x")
    monkeypatch.chdir(tmp_path)
    target, table_id = Target(), str(DeltaTable("people").metadata().id)
    target.seen = Activity(Position(0, table_id), dt.datetime.now(dt.UTC), has_runner=False, dead_letters=4)
    monkeypatch.setattr(Project, "build_sink", lambda _project, _name: target)
    return target


def project() -> Project:
    return load(Path("deltarelay.yaml"))


def parse(text: str) -> Samples:
    """→ values by name and the values of the labels, in the order of the labels"""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def get(served: ServedMetrics, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def serve(**options: Any) -> Iterator[ServedMetrics]:
    served = ServedMetrics(project(), ["people"], host="127.0.0.1", port=0, refresh_seconds=0.1, **options)
    try:
        yield served
    finally:
        served.close()


def wait_for(served: ServedMetrics, key: tuple[str, ...], value: float) -> Samples:
    deadline = time.monotonic() + 20
    while (found := parse(get(served, "/metrics")[1])).get(key) != value:
        assert time.monotonic() < deadline, (key, found.get(key))
        time.sleep(0.05)
    return found


def test_a_scrape_shows_lag_rows_durations_and_state(target: Target) -> None:
    with serve() as served:
        assert get(served, "/healthz") == (200, "ok\n")
        assert get(served, "/readyz") == (503, "not ready: people\n")
        served.begin("people", None)
        assert get(served, "/readyz") == (200, "ok\n")
        found = wait_for(served, ("deltarelay_lag_versions", "people"), 0)
        assert found["deltarelay_rows_total", "insert", "people"] == 0
        write_deltalake("people", ROWS, mode="append")
        write_deltalake("people", ROWS, mode="append")
        served.record_step("people", COPY)
        served.record_step("people", WINDOW)
        served.record_step("people", WINDOW)
        found = wait_for(served, ("deltarelay_lag_versions", "people"), 2)
        rows = {
            change: found["deltarelay_rows_total", change, "people"]
            for change in ("insert", "update", "delete", "load")
        }
        assert rows == {"insert": 6, "update": 4, "delete": 2, "load": 7}
        assert 0 < found["deltarelay_lag_seconds", "people"] < 60
        assert 6 < found["deltarelay_feed_expires_seconds", "people"] / 86_400 <= 7
        assert found["deltarelay_dead_letters", "people"] == 4
        assert abs(time.time() - found["deltarelay_last_success_timestamp_seconds", "people"]) < 60
        states = {key[2]: value for key, value in found.items() if key[0] == "deltarelay_state"}
        assert {state for state, value in states.items() if value} == {"behind"}
        buckets = [found["deltarelay_window_seconds_bucket", le, "people", "apply"] for le in ("0.25", "0.5", "+Inf")]
        assert buckets == [0, 2, 2]
        assert found["deltarelay_window_seconds_sum", "people", "apply"] == pytest.approx(0.8)
        assert found["deltarelay_window_seconds_count", "people", "total"] == 3
        text = get(served, "/metrics")[1]
        assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == {
            one.name for one in METRICS
        }
        for word in ("planted-value", SECRET, "me:", "127.0.0.1", str(Path.cwd())):
            assert word not in text
        served.record_step("planted-value", COPY)  # the control: the search finds what is there
        assert "planted-value" in get(served, "/metrics")[1]
        assert get(served, "/")[0] == 404


def test_a_failed_run_shows_its_state_until_the_end(target: Target) -> None:
    with serve() as served:
        served.begin("people", None)
        for error, state in (
            (BrakeStopped("x"), "stopped_by_brake"),
            (SinkUnavailable("x"), "unreachable"),
            (ConfigError("x"), "failed"),
        ):
            served.end("people", error)
            time.sleep(0.3)  # a refresh does not hide it
            assert parse(get(served, "/metrics")[1])["deltarelay_state", "people", state] == 1
        assert get(served, "/readyz") == (503, "not ready: people\n")


def test_a_port_in_use_is_one_error_before_anything_starts(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as left:
            main(["run", "--follow", "--metrics-port", str(port)])
    assert left.value.code == 2
    assert f"--metrics-port: cannot listen on 127.0.0.1:{port} (Address already in use)" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["run", "--metrics-port", "9400"])
    assert left.value.code == 2


def test_jobs_continue_the_totals_of_the_text_file(target: Target, tmp_path: Path) -> None:
    file = tmp_path / "deltarelay.prom"

    def run_job(pipeline: str) -> Samples:
        job = MetricsObserver(project(), ["people"], textfile=file)
        job.begin(pipeline, None)
        job.record_step(pipeline, WINDOW)
        job.end(pipeline, None)
        job.close()
        return parse(file.read_text())

    first, second = run_job("people"), run_job("people")
    assert [one["deltarelay_rows_total", "insert", "people"] for one in (first, second)] == [3, 6]
    for bound, counts in (("0.1", [0, 0]), ("0.25", [1, 2]), ("0.5", [1, 2]), ("+Inf", [1, 2])):
        key = ("deltarelay_window_seconds_bucket", bound, "people", "stage")
        assert [one[key] for one in (first, second)] == counts
    assert second["deltarelay_window_seconds_sum", "people", "stage"] == pytest.approx(0.4)
    assert second["deltarelay_state", "people", "up_to_date"] == 1
    assert [one.name for one in tmp_path.iterdir() if "prom" in one.name] == ["deltarelay.prom"]
    assert "planted-value" not in file.read_text()

    file.write_text("damaged {\n")
    assert run_job("people")["deltarelay_rows_total", "insert", "people"] == 3


def test_pipelines_that_are_not_configured_any_more_leave_the_text_file(target: Target, tmp_path: Path) -> None:
    file = tmp_path / "deltarelay.prom"
    first = MetricsObserver(project(), ["people"], textfile=file)
    first.record_step("people", WINDOW)
    first.close()
    before = parse(file.read_text())
    file.write_text(file.read_text() + file.read_text().replace("people", "removed"))
    assert ("deltarelay_rows_total", "insert", "removed") in parse(file.read_text())
    MetricsObserver(project(), [], textfile=file).close()  # a command for other pipelines
    assert parse(file.read_text()) == before


def test_a_success_is_not_forgotten_where_the_sink_records_none(target: Target, tmp_path: Path) -> None:
    earlier = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    target.seen = Activity(target.seen.position, earlier, has_runner=False)
    file, began = tmp_path / "deltarelay.prom", time.time()
    job = MetricsObserver(project(), ["people"], textfile=file)
    job.begin("people", None)
    job.end("people", None)
    job.close()
    assert parse(file.read_text())["deltarelay_last_success_timestamp_seconds", "people"] >= began


def test_a_folder_that_is_missing_is_refused_by_the_name_of_the_setting(target: Target, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics.textfile: there is no folder"):
        MetricsObserver(project(), ["people"], textfile=tmp_path / "absent" / "x.prom")


def test_a_target_that_does_not_answer_delays_no_scrape_and_no_end(target: Target, tmp_path: Path) -> None:
    target.delay.clear()
    served = ServedMetrics(project(), ["people"], host="127.0.0.1", port=0, textfile=tmp_path / "x.prom")
    try:
        served.record_step("people", WINDOW)
        began = time.monotonic()
        assert parse(get(served, "/metrics")[1])["deltarelay_rows_total", "insert", "people"] == 3
        assert time.monotonic() - began < 2
    finally:
        began = time.monotonic()
        served.close()
        seconds = time.monotonic() - began
        target.delay.set()
    assert seconds < 7
    assert parse((tmp_path / "x.prom").read_text())["deltarelay_rows_total", "insert", "people"] == 3


def test_what_was_known_of_a_target_is_not_shown_as_its_present_lag(target: Target) -> None:
    with serve() as served:
        wait_for(served, ("deltarelay_lag_versions", "people"), 0)
        target.seen = Activity(Position(5, target.seen.position.table_id))  # after a restored source
        found = wait_for(served, ("deltarelay_state", "people", "failed"), 1)
        assert ("deltarelay_lag_versions", "people") not in found
        assert found["deltarelay_dead_letters", "people"] == 4

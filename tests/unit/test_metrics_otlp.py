"""Metrics by OTLP: a real HTTP server decodes what arrives. A real table; the sink is a fake."""

from __future__ import annotations

import datetime as dt
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cdf.errors import CdfError
from cdf.results import Step
from cdf.sink import Activity, Applied, Position
from infra.cli.main import main
from infra.config.load import load
from infra.config.models import Project, describe
from infra.monitoring.metric_names import BUCKETS, METRICS
from infra.monitoring.metrics import MetricsObserver
from infra.monitoring.metrics_otlp import OtlpPush
from infra.monitoring.observers import observe

SECRET = "token-4711"
WINDOW = Step("window", 1, 2, 2, Applied(2, inserts=3, updates=2, deletes=1, seconds={"stage": 0.2, "apply": 0.5}))
COPY = Step("load", 0, 0, 2, Applied(0, inserts=7, seconds={"copy": 2000.0}))
ABSENT = ("deltarelay_feed_expires_seconds", "deltarelay_unanchored_commits", "deltarelay_erasures_overdue")
Samples = dict[tuple[str, ...], float]


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = []
        self.status, self.location = 200, ""
        self.answers = threading.Event()
        self.answers.set()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def wait_for(self, requests: int) -> None:
        deadline = time.monotonic() + 20
        while len(self.requests) < requests:
            assert time.monotonic() < deadline
            time.sleep(0.02)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        request = ExportMetricsServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, dict(self.headers), request))
        self.server.answers.wait(30)
        self.send_response(self.server.status, f"refused: {self.headers['authorization']}")
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Target:
    """What ``status`` needs of a sink."""

    def __init__(self, seen: Activity) -> None:
        self.seen = seen
        self.answers = threading.Event()
        self.answers.set()

    def position(self) -> Position:
        return self.activity().position

    def activity(self) -> Activity:
        self.answers.wait(30)
        return self.seen


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.answers.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    write_deltalake(
        tmp_path / "people", pa.table({"id": ["planted-value"]}), configuration={"delta.enableChangeDataFeed": "true"}
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", SECRET)
    table_id = str(DeltaTable("people").metadata().id)
    target = Target(Activity(Position(0, table_id), dt.datetime.now(dt.UTC), has_runner=False, dead_letters=4))
    monkeypatch.setattr(Project, "build_sink", lambda _project, _name: target)
    return target


def configure(metrics: str) -> Project:
    Path("deltarelay.yaml").write_text(
        "version: 1\n"
        "connections: {warehouse: {kind: postgres, dsn: 'postgresql://me:other-secret@127.0.0.1:1/x'}}\n"
        "pipelines: {people: {source: {table: ./people, key: [id]}, sink: {connection: warehouse, table: people}}}\n"
        f"metrics: {metrics}\n"
    )
    return load(Path("deltarelay.yaml"))


def name_receiver(receiver: Receiver) -> str:
    return f"{{otlp: {{endpoint: '{receiver.url}/', headers: {{Authorization: 'Bearer ${{TOKEN}}'}}}}}}"


def replicate(project: Project, receiver: Receiver, *steps: Step) -> MetricsObserver:
    already = len(receiver.requests)
    with observe(project, ["people"], has_metrics=True) as observers:
        observers.begin("people")
        receiver.wait_for(already + 1)  # the first push is before the steps
        for step in steps:
            observers.record_step("people", step)
        observers.end("people", None)
        (observer,) = observers._observers
    assert isinstance(observer, MetricsObserver)
    return observer


def list_metrics(request: ExportMetricsServiceRequest) -> list[Any]:
    ((scope,),) = [one.scope_metrics for one in request.resource_metrics]
    return list(scope.metrics)


def flatten(request: ExportMetricsServiceRequest) -> Samples:
    """As Prometheus names them: name, label values in the order of the labels' names"""
    found: Samples = {}
    for metric in list_metrics(request):
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            labels = dict(sorted((one.key, one.value.string_value) for one in point.attributes))
            if metric.WhichOneof("data") != "histogram":
                found[metric.name, *labels.values()] = point.as_double
                continue
            found[f"{metric.name}_count", *labels.values()] = point.count
            found[f"{metric.name}_sum", *labels.values()] = point.sum
            for place, bound in enumerate([*map(str, point.explicit_bounds), "+Inf"], start=1):
                found[f"{metric.name}_bucket", bound, *labels.values()] = sum(point.bucket_counts[:place])
    return found


def test_the_receiver_gets_the_values_of_prometheus(target: Target, receiver: Receiver) -> None:
    began = time.time_ns()
    observer = replicate(configure(name_receiver(receiver)), receiver, COPY, WINDOW, WINDOW)
    path, headers, request = receiver.requests[-1]
    assert (path, headers["authorization"]) == ("/v1/metrics", f"Bearer {SECRET}")
    found = flatten(request)
    rows = {key[1]: value for key, value in found.items() if key[0] == "deltarelay_rows_total"}
    assert rows == {"insert": 6, "update": 4, "delete": 2, "load": 7}
    assert found["deltarelay_lag_versions", "people"] == 0
    assert found["deltarelay_dead_letters", "people"] == 4
    assert [key[2] for key, value in found.items() if key[0] == "deltarelay_state" and value] == ["up_to_date"]
    assert found["deltarelay_window_seconds_bucket", "0.25", "people", "apply"] == 0
    assert found["deltarelay_window_seconds_bucket", "0.5", "people", "apply"] == 2
    assert found["deltarelay_window_seconds_bucket", "1800.0", "people", "copy"] == 0
    assert found["deltarelay_window_seconds_bucket", "+Inf", "people", "copy"] == 1
    assert found["deltarelay_window_seconds_sum", "people", "total"] == pytest.approx(2001.4)
    scraped = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(observer.store.build_registry()).decode())
        for sample in family.samples
    }
    assert found == scraped

    kinds = {metric.name: metric.WhichOneof("data") for metric in list_metrics(request)}
    names = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}
    known = {one.name: names[one.kind] for one in METRICS if one.name not in ABSENT}
    assert kinds == known
    by_name = {metric.name: metric for metric in list_metrics(request)}
    counter, histogram = by_name["deltarelay_rows_total"].sum, by_name["deltarelay_window_seconds"].histogram
    assert counter.is_monotonic
    assert counter.aggregation_temporality == histogram.aggregation_temporality == 2  # cumulative
    assert tuple(histogram.data_points[0].explicit_bounds) == BUCKETS
    assert not histogram.data_points[0].HasField("min")
    for point in (*counter.data_points, *histogram.data_points):
        assert began < point.start_time_unix_nano < point.time_unix_nano < time.time_ns()
    resource = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
    assert resource == {"service.name": "deltarelay"}
    for word in ("planted-value", SECRET, "other-secret", str(Path.cwd())):
        assert word not in str(request)
    assert "up_to_date" in str(request)  # the control: the search finds what is there


def test_with_a_text_file_the_totals_continue_and_their_beginning_is_not_known(
    target: Target, receiver: Receiver
) -> None:
    project = configure(name_receiver(receiver)[:-1] + ", textfile: deltarelay.prom}")
    for total in (3, 6):
        replicate(project, receiver, WINDOW)
        request = receiver.requests[-1][2]
        assert flatten(request)["deltarelay_rows_total", "insert", "people"] == total
        (metric,) = [one for one in list_metrics(request) if one.name == "deltarelay_rows_total"]
        assert {point.start_time_unix_nano for point in metric.sum.data_points} == {0}


def test_a_follower_sends_again_and_again(target: Target, receiver: Receiver) -> None:
    project = configure(name_receiver(receiver))
    assert project.metrics is not None and project.metrics.otlp is not None  # noqa: PT018
    push = OtlpPush(project.metrics.otlp, continues_totals=False)
    observer = MetricsObserver(project, ["people"], push=push, refresh_seconds=0.1)
    observer.record_step("people", WINDOW)
    receiver.wait_for(3)
    observer.close()
    assert flatten(receiver.requests[-1][2])["deltarelay_rows_total", "insert", "people"] == 3


@pytest.mark.parametrize("has_target", [True, False])
def test_a_receiver_that_never_answers_delays_no_step_and_the_end_by_seconds(
    target: Target, receiver: Receiver, has_target: bool
) -> None:
    receiver.answers.clear()
    if not has_target:
        target.answers.clear()
    project = configure(name_receiver(receiver))
    began = time.monotonic()
    with observe(project, ["people"], has_metrics=True) as observers:
        for _ in range(1000):
            observers.record_step("people", WINDOW)
        observers.end("people", None)
        stepped = time.monotonic() - began
    ended = time.monotonic() - began
    target.answers.set()
    assert receiver.requests
    assert stepped < 2
    assert ended < 8


def test_an_outage_is_one_line_without_secrets(
    target: Target, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 401  # the reason quotes the token
    project = configure(name_receiver(receiver))
    with caplog.at_level(logging.INFO, "deltarelay"), observe(project, ["people"], has_metrics=True) as observers:
        (observer,) = observers._observers
        assert isinstance(observer, MetricsObserver)
        for sent in (1, 2, 3):
            receiver.wait_for(sent)
            observer._publish()
    ours = [one for one in caplog.records if one.name.startswith("deltarelay")]
    assert [(one.getMessage(), one.__dict__["error"]) for one in ours] == [("metrics not sent by OTLP", "HTTP 401")]
    assert SECRET not in str([one.__dict__ for one in ours])
    assert SECRET in str(receiver.requests[0][1])  # the control


def test_headers_are_not_sent_to_another_server(
    target: Target, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    other = Receiver()
    try:
        receiver.status, receiver.location = 307, f"{other.url}/v1/metrics"
        with caplog.at_level(logging.INFO, "deltarelay.monitoring"):
            replicate(configure(name_receiver(receiver)), receiver)
        assert other.requests == []
        assert [one.__dict__["error"] for one in caplog.records if one.name == "deltarelay.monitoring"] == ["HTTP 307"]
    finally:
        other.shutdown()
        other.server_close()


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("{otlp: {endpoint: 'collector:4317'}}", "metrics.otlp.endpoint: must be an address such as"),
        ("{otlp: {endpoint: 'https://me:token-4711@host'}}", "metrics.otlp.endpoint: must be an address such as"),
        ("{otlp: {endpoint: 'https://host/?key=token-4711'}}", "metrics.otlp.endpoint: must be an address such as"),
        ("{otlp: {endpoint: 'https://host', headers: {'a b': x}}}", "metrics.otlp.headers"),
        (
            "{otlp: {endpoint: 'https://host', headers: {a: \"token-4711\\n\"}}}",
            "metrics.otlp.headers.a: must be printable",
        ),
        ("{otlp: {headers: {a: b}}}", "metrics.otlp.endpoint: is missing"),
        ("{otlp: {endpoint: 'https://host', header: {a: b}}}", "did you mean `headers`?"),
        ("{}", "metrics: names no place: set `textfile` or `otlp`"),
    ],
)
def test_wrong_settings_are_refused_with_line_and_column(
    tmp_path: Path, monkeypatch: Any, metrics: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CdfError, match=r"deltarelay\.yaml:4:\d+:") as refused:
        configure(metrics)
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)


def test_headers_are_masked(target: Target, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    project = configure(name_receiver(receiver))
    assert describe(project)["metrics"]["otlp"] == {"endpoint": f"{receiver.url}/", "headers": {"Authorization": "***"}}
    for arguments in (["validate"], ["validate", "--json"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 0
    printed = capsys.readouterr()
    shown = printed.out + printed.err + json.dumps(describe(project)) + repr(project)
    assert SECRET not in shown
    assert receiver.url in shown  # the control


def test_without_the_extra_one_error_names_it_and_nothing_is_imported_without_the_setting(
    target: Target, receiver: Receiver
) -> None:
    program = """
import sys
from pathlib import Path
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("opentelemetry", "prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from infra.config.load import load
from infra.monitoring.observers import observe
try:
    with observe(load(Path("deltarelay.yaml")), ["people"], has_metrics=True):
        print("observed")
except Exception as error:
    print(type(error).__name__, error, error.hint)
"""

    def attempt() -> str:
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        ).stdout

    configure(name_receiver(receiver))
    assert attempt() == (
        "ConfigError the OpenTelemetry exporter of metrics is not installed pip install 'deltarelay[otlp]'\n"
    )
    configure("null")
    assert attempt() == "observed\n"

"""Sends the metrics to a receiver of OpenTelemetry, in a thread of its own. Import it late: extra ``otlp``.

The values are those of the store, so that they are the same as for Prometheus; the SDK encodes and sends them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from infra.monitoring.background import Background
from infra.monitoring.metric_names import BUCKETS, METRICS, Metric

if TYPE_CHECKING:
    from infra.config.monitoring_models import Otlp
    from infra.monitoring.metric_store import Labels, MetricStore

__all__ = ["OtlpPush"]

SEND_SECONDS = 3.0
"""Time limit of one push, with the retries of the SDK."""
_PATH = "/v1/metrics"
_TOTAL = AggregationTemporality.CUMULATIVE

log = logging.getLogger("deltarelay.monitoring")


class OtlpPush:
    """``continues_totals``: the counters go on from an earlier process, so their beginning is not known."""

    def __init__(self, settings: Otlp, *, continues_totals: bool) -> None:
        self._began = 0 if continues_totals else time.time_ns()
        # No `service.instance.id` by default: each run would be a time series of its own
        self._resource = Resource({"service.name": "deltarelay"}).merge(OTELResourceDetector().detect())
        session = requests.Session()
        session.hooks["response"].append(self._keep_status)
        self._exporter = OTLPMetricExporter(
            endpoint=settings.endpoint.rstrip("/").removesuffix(_PATH) + _PATH,
            headers={name: value.get_secret_value() for name, value in settings.headers.items()},
            timeout=SEND_SECONDS,
            session=session,
        )
        self._status: int | None = None
        self._is_failing = False
        self._background = Background("metrics.otlp")

    def submit(self, store: MetricStore) -> None:
        """Send the present values. Returns at once."""
        # What waits behind a slow push is out of date when a newer one comes
        self._background.submit_latest("push", lambda: self._send(store))

    def close(self, seconds: float) -> None:
        """Wait at most ``seconds`` for what was submitted."""
        if self._background.close(seconds):
            self._exporter.shutdown()

    def _send(self, store: MetricStore) -> None:
        self._status = None
        data = build_data(store, self._resource, began=self._began, now=time.time_ns())
        # The SDK follows no redirect, and takes it for a success
        if self._exporter.export(data) is MetricExportResult.SUCCESS and (self._status or 200) < 300:
            self._is_failing = False
            return
        # One line per outage. The SDK's own messages may quote the answer, so they are shown with --debug only
        answer = "no answer" if self._status is None else f"HTTP {self._status}"
        log.log(
            logging.DEBUG if self._is_failing else logging.WARNING, "metrics not sent by OTLP", extra={"error": answer}
        )
        self._is_failing = True

    def _keep_status(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._status = response.status_code


def build_data(store: MetricStore, resource: Resource, *, began: int, now: int) -> MetricsData:
    """``began`` and ``now`` in nanoseconds; ``began`` 0: not known."""
    values = store.copy_values()
    metrics = [
        SdkMetric(name=one.name, description=one.help, unit="", data=_build_points(one, values[one.name], began, now))
        for one in METRICS
        if values[one.name]
    ]
    scope = ScopeMetrics(InstrumentationScope("deltarelay"), metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _build_points(metric: Metric, values: dict[Labels, Any], began: int, now: int) -> Sum | Gauge | Histogram:
    if metric.kind == "histogram":
        return Histogram(list(_build_histograms(metric, values, began, now)), _TOTAL)
    start = began if metric.kind == "counter" else 0  # a gauge has no beginning
    points: Sequence[NumberDataPoint] = [
        NumberDataPoint(_name_labels(metric, labels), start, now, value) for labels, value in sorted(values.items())
    ]
    return Sum(points, _TOTAL, is_monotonic=True) if metric.kind == "counter" else Gauge(points)


def _build_histograms(
    metric: Metric, values: dict[Labels, list[float]], began: int, now: int
) -> Iterator[HistogramDataPoint]:
    absent: Any = None  # the store keeps no minimum and no maximum; both are optional in the protocol
    for labels, (*counts, total) in sorted(values.items()):
        whole = [round(one) for one in counts]
        yield HistogramDataPoint(
            _name_labels(metric, labels), began, now, sum(whole), total, whole, BUCKETS, min=absent, max=absent
        )


def _name_labels(metric: Metric, labels: Iterable[str]) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))

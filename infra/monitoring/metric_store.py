"""The present values of all metrics, also as a collector of prometheus-client. Safe to use from several threads."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from infra.monitoring.metric_names import BUCKETS, METRICS, Metric

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

__all__ = ["Labels", "MetricStore"]

Labels = tuple[str, ...]


class MetricStore:
    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, Any]] = {metric.name: {} for metric in METRICS}
        """A number for each combination of labels; for a histogram the counts by bucket, and the sum as the last one."""
        self._lock = threading.Lock()

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        with self._lock:
            values = self._values[metric.name]
            values[labels] = values.get(labels, 0.0) + amount

    def set(self, metric: Metric, labels: Labels, value: float | None) -> None:
        """None removes the value: a figure that is not known any more must not look current."""
        with self._lock:
            if value is None:
                self._values[metric.name].pop(labels, None)
            else:
                self._values[metric.name][labels] = float(value)

    def raise_to(self, metric: Metric, labels: Labels, value: float) -> None:
        """Set the value, unless the present one is higher."""
        with self._lock:
            values = self._values[metric.name]
            values[labels] = max(float(value), values.get(labels, float("-inf")))

    def observe(self, metric: Metric, labels: Labels, seconds: float) -> None:
        with self._lock:
            counts = self._values[metric.name].setdefault(labels, [0.0] * (len(BUCKETS) + 2))
            counts[bisect.bisect_left(BUCKETS, seconds)] += 1
            counts[-1] += seconds

    def restore(self, text: str, *, pipelines: Iterable[str], configured: Container[str]) -> None:
        """Continue the totals of a text that an earlier process has written. Gauges of ``pipelines`` are not taken over:
        they are measured again. Of pipelines that are not ``configured`` any more, nothing is taken over."""
        from prometheus_client.parser import text_string_to_metric_families

        own, known = set(pipelines), {metric.name: metric for metric in METRICS}
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            metric = known.get(name)
            if metric is None or metric.kind != family.type:
                continue
            for sample in family.samples:
                if not set(metric.labels) <= set(sample.labels):
                    continue
                labels = tuple(sample.labels[label] for label in metric.labels)
                if labels and labels[0] not in configured:
                    continue
                if metric.kind == "histogram":
                    self._restore_bucket(metric, labels, sample.name, sample.labels, sample.value)
                elif metric.kind == "counter" or (labels and labels[0] not in own):
                    self.set(metric, labels, sample.value)

    def _restore_bucket(
        self, metric: Metric, labels: Labels, name: str, named: Mapping[str, str], value: float
    ) -> None:
        with self._lock:
            counts = self._values[metric.name].setdefault(labels, [0.0] * (len(BUCKETS) + 2))
            if name.endswith("_sum"):
                counts[-1] = value
            elif name.endswith("_bucket"):  # ascending and cumulative
                place = bisect.bisect_left(BUCKETS, float(named["le"]))
                counts[place] = value - sum(counts[:place])

    def copy_values(self) -> dict[str, dict[Labels, Any]]:
        """By name and labels: a number; for a histogram the counts by bucket, and the sum as the last one."""
        with self._lock:
            return {name: {labels: _copy(one) for labels, one in found.items()} for name, found in self._values.items()}

    def collect(self) -> Iterable[Any]:
        """The protocol of prometheus-client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        values = self.copy_values()
        for metric in METRICS:
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                for labels, counts in sorted(values[metric.name].items()):
                    bounds = [*map(str, BUCKETS), "+Inf"]
                    cumulative = [sum(counts[: place + 1]) for place in range(len(bounds))]
                    histogram.add_metric(labels, list(zip(bounds, cumulative, strict=True)), counts[-1])
                yield histogram
                continue
            family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
                metric.name, metric.help, labels=metric.labels
            )
            for labels, value in sorted(values[metric.name].items()):
                family.add_metric(labels, value)
            yield family

    def build_registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value

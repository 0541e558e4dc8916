"""The page of metrics, from the constants of ``infra.monitoring.metric_names``."""

from __future__ import annotations

from infra.monitoring.metric_names import BUCKETS, CHANGES, METRICS, STATES

__all__ = ["metrics_page"]

_HEAD = """# Metrics

<!-- generated: make references -->

`run --follow --metrics-port` serves these metrics. Every `run` with `metrics.textfile` writes them, and with `metrics.otlp`
sends them: [Monitor pipelines](../how-to/monitor-pipelines.md). The label `pipeline` is the name in the configuration. No
metric has row values, keys or addresses. A figure that is not known is absent. In OTLP a counter is a monotonic sum, totals
are cumulative, labels are attributes, and there are no units.

| name | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |"
        for one in METRICS
    ]
    values = [
        f"* `change`: {', '.join(f'`{one}`' for one in CHANGES)}.",
        f"* `state`: {', '.join(f'`{one}`' for one in STATES)}.",
        "* `step`: the steps of the sink, such as `stage` and `apply`, and `total`.",
        f"* Bounds of the histogram, in seconds: {', '.join(f'{one:g}' for one in BUCKETS)}.",
    ]
    return _HEAD + "\n".join(rows) + "\n\n## Values\n\n" + "\n".join(values) + "\n"

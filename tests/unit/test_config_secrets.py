"""References are filled in or told as missing, and no secret is ever shown: not in errors, not by the project."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, SecretStr, field_validator

import connectors.registry
from audit.signing.signer import Signer
from cdf.errors import ConfigError
from connectors.postgres.config import PostgresOptions
from infra.config.load import load
from infra.config.models import Project, describe
from infra.s3.model import Storage
from tests.fixtures.fix_seed import examples

CANARY = "hunter2canary"
DSN = f"postgresql://user:{CANARY}@host/db"
FILE = """\
version: 1
connections:
  warehouse: {kind: postgres, dsn: "DSN"}
pipelines:
  customers:
    source: {table: "TABLE", key: [id]}
    sink: {connection: warehouse, table: t}
spark:
  conf: {spark.x: "SETTING", spark.hadoop.fs.s3a.secret.key: "KEY"}
"""


def read(folder: Path, *, environ: dict[str, str] | None = None, **parts: str) -> Project:
    text = FILE
    for name in ("DSN", "TABLE", "SETTING", "KEY"):
        text = text.replace(name, parts.get(name.lower(), "plain"))
    file = folder / "deltarelay.yaml"
    file.write_text(text)
    return load(file, environ=environ or {})


def dsn_of(project: Project) -> str:
    return str(getattr(project.connections["warehouse"].settings, "dsn").get_secret_value())  # noqa: B009


def everything(error: BaseException) -> str:
    fields = json.dumps(error.to_dict()) if isinstance(error, ConfigError) else ""
    return "".join(traceback.format_exception(error)) + repr(error) + fields


def test_references_are_filled_in_whole_and_in_part(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("p@ss\n")
    environ = {"HOST": "db1", "BUCKET": "lake", "ODD": "${HOST} $$"}
    project = read(
        tmp_path,
        dsn=f"postgresql://u:${{file:{tmp_path}/pw}}@${{HOST}}/$$db$1",
        table="s3a://${BUCKET}/t",
        setting="${ODD}",
        key="${file:pw}",
        environ=environ,
    )
    assert dsn_of(project) == "postgresql://u:p@ss@db1/$db$1"
    assert project.pipelines["customers"].source.table == "s3a://lake/t"
    # what is filled in is not searched again, and a relative secret file starts at the configuration's folder
    assert project.spark.settings() == {"spark.x": "${HOST} $$", "spark.hadoop.fs.s3a.secret.key": "p@ss"}


@pytest.mark.parametrize(("written", "taken"), [("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x ", " x ")])
def test_only_the_last_line_break_of_a_secret_file_goes(tmp_path: Path, written: str, taken: str) -> None:
    (tmp_path / "pw").write_bytes(written.encode())
    assert dsn_of(read(tmp_path, dsn="a${file:pw}b")) == f"a{taken}b"


def test_numbers_may_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(FILE + "jars: []\n")
    text = FILE.replace("sink:", 'window: {max_commits: "${N}", max_bytes: "${SIZE}"}\n    sink:')
    file.write_text(text)
    window = load(file, environ={"N": "12", "SIZE": "5MB"}).pipelines["customers"].window
    assert (window.max_commits, window.max_bytes) == (12, 5_000_000)


def test_a_reference_that_wants_quotes_says_so(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(FILE.replace('"DSN"', "${DSN}"))
    with pytest.raises(ConfigError, match="is not YAML") as caught:
        load(file, environ={"DSN": DSN})
    assert "in quotes, also ${NAME}" in (caught.value.hint or "")


def test_all_missing_references_are_told_with_their_places(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, dsn="${USER_A}:${PASSWORD_A}@${file:/no/such/secret}", table="${BUCKET}/t", setting="${S}")
    errors = caught.value.fields["errors"]
    assert [(one["line"], one["column"], one["path"]) for one in errors] == [
        (3, 37, "connections.warehouse.dsn"),
        (3, 47, "connections.warehouse.dsn"),
        (3, 61, "connections.warehouse.dsn"),
        (6, 22, "pipelines.customers.source.table"),
        (9, 20, "spark.conf.spark.x"),
    ]
    assert "the environment variable PASSWORD_A is not set" in caught.value.message
    assert "the secret file /no/such/secret cannot be read (no such file or directory)" in caught.value.message
    assert "write $$ for a plain $" in (caught.value.hint or "")


@pytest.mark.parametrize("reference", ["${}", "${A-B}", "${A:-x}", "${", "${ A }", f"${{{CANARY}@"])
def test_malformed_references_are_refused_without_repeating_them(tmp_path: Path, reference: str) -> None:
    with pytest.raises(ConfigError, match="a reference must be") as caught:
        read(tmp_path, dsn=reference)
    assert CANARY not in everything(caught.value)


def test_a_project_never_shows_a_secret(tmp_path: Path) -> None:
    project = read(tmp_path, dsn=DSN, setting="-Dpw=${PW}", key=CANARY, environ={"PW": CANARY})
    described = describe(project)
    for shown in (str(project), repr(project), project.model_dump_json(), str(project.model_dump()), str(described)):
        assert CANARY not in shown
    assert described == {
        "version": 1,
        "storage": Storage().model_dump(mode="json"),
        "connections": {"warehouse": {"kind": "postgres", "dsn": "***"}},
        "pipelines": {
            "customers": {
                "source": {"table": "plain", "tables": None, "key": ["id"], "start": "snapshot"},
                "sink": {"connection": "warehouse", **PostgresOptions(table="t").model_dump(mode="json")},
                "window": {"max_commits": 500, "max_bytes": 268435456},
                "brakes": {"max_delete_rows": None, "max_delete_share": 0.5, "max_change_share": None},
            }
        },
        "spark": {"master": None, "remote": None, "conf": {"spark.x": "***", "spark.hadoop.fs.s3a.secret.key": "***"}},
        "jars": [],
    }
    assert json.loads(json.dumps(described)) == described


MISPLACED = [
    'connections:\n  w: {kind: postgres, dsn: "DSN", typo: 1}  # was DSN\n',
    'connections:\n  w: {kind: postgre, dsn: "DSN"}\n',
    'connections:\n  w: {kind: postgres, dns: "DSN"}\n',
    "connections:\n  w: {kind: postgres, dsn:DSN}\n",
    "connections:\n  w: {kind: postgres, DSN}\n",
    'connections:\n  w: {kind: postgres, dsn, "CANARY"}\n',
    "connections:\n  w: DSN\n",
    "connections:\n  w: {kind: DSN}\n",
    "connections:\n  w: {kind: postgres, dsn: [DSN]}\n",
    "connections:\n  w: {kind: postgres, dsn: {CANARY: 1}}\n",
    "connections:\n  w: {kind: postgres, dsn: !secret DSN}\n",
    "connections:\n  w: {kind: postgres, dsn: a, dsn: DSN}\n",
    "connections:\n  w:\n    kind: postgres\n    dsn: |\n      DSN\n    typo: >-\n      DSN\n",
    'connections:\n  w: {kind: postgres, dsn: "x\n    DSN", typo: 1}\n',
    'connections:\n  w:\n    dsn: "DSN\n',
    "connections:\n  w:\n    dsn: *CANARY\n",
    "connections:\n  w:\n    dsn: @CANARY\n",
    "connections:\n  w:\n    dsn: a: CANARY\n",
    "connections:\n  w:\n  dsn DSN\n    x: 1\n",
    "connections:\n  w: {kind: postgres, dsn: &CANARY x, typo: *CANARY}\n",
    "connections:\n  w: {kind: postgres, ? [CANARY] : CANARY}\n",
    "conections:\n  w: {kind: postgres, dsn: DSN}\n",
    "conections: {w: {kind: postgres, dsn: DSN, CANARY: CANARY}}\n",
    "pipelines:\n  p: {sink: {connection: w, dsn: DSN}, source: {table: 's3a://k:CANARY@b/t', key: [a]}}\n",
    "spark: {conf: {spark.password: [CANARY]}, pasword: CANARY}\n",
    "version: {CANARY: CANARY}\n",
    "CANARY\n",
    "- CANARY\n",
]


@pytest.mark.parametrize("text", MISPLACED)
def test_no_error_shows_a_secret_wherever_it_stands(tmp_path: Path, text: str) -> None:
    head = "" if text.startswith(("version", "CANARY", "-")) else "version: 1\n"
    file = tmp_path / "deltarelay.yaml"
    file.write_text(head + text.replace("DSN", DSN).replace("CANARY", CANARY))
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert CANARY not in everything(caught.value)


@pytest.mark.parametrize("tables", ["${NAME}", CANARY], ids=["filled in", "written"])
def test_a_message_that_repeats_a_value_hides_what_is_secret(tmp_path: Path, tables: str) -> None:
    """The value of a reference, and what stands as a password in the same file."""
    file = tmp_path / "deltarelay.yaml"
    dsn = "plain" if tables.startswith("$") else CANARY
    text = (
        FILE.replace("DSN", dsn)
        .replace('{table: "TABLE"', f'{{tables: "./{tables}/*"')
        .replace("table: t", 'table: "x_{name}"')
    )
    file.write_text(text)
    with pytest.raises(ConfigError, match="cannot be listed") as caught:
        load(file, environ={"NAME": CANARY})
    assert "/*** cannot" in str(caught.value)
    assert CANARY not in everything(caught.value)


@settings(max_examples=examples(60))
@given(cut=st.integers(0, 10**6), junk=st.sampled_from(["", ": ", "? ", *"[}\"'\n\t&*!|#,"]))
def test_no_damaged_file_shows_its_secret(tmp_path_factory: pytest.TempPathFactory, cut: int, junk: str) -> None:
    text = FILE.replace("DSN", DSN).replace("KEY", CANARY)
    safe_until = text.index("dsn:") + 5  # a secret that is made part of a name cannot be told from a name
    at = safe_until + cut % (len(text) - safe_until)
    if text.rfind(CANARY, 0, at) < at < text.find(CANARY) + len(CANARY):
        return
    file = tmp_path_factory.mktemp("c") / "deltarelay.yaml"
    file.write_text(text[:at] + junk + text[at + 1 :])
    caught: list[ConfigError] = []
    try:
        load(file, environ={})
    except ConfigError as error:
        caught.append(error)
    assert CANARY not in "".join(map(everything, caught))


class Talkative(BaseModel):
    """A third party's model whose own message repeats what it was given."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    token: SecretStr

    @field_validator("token")
    @classmethod
    def _refuse(cls, value: SecretStr) -> SecretStr:
        raise ValueError(f"cannot parse {value.get_secret_value()} at {value.get_secret_value()[3:16]}")


class TalkativeKind:
    name = "talkative"
    connection = Talkative
    options = Talkative


@pytest.mark.parametrize("written", [f"ab:{CANARY}", "${TOKEN}"])
def test_a_talkative_validator_is_silenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setitem(connectors.registry.BUILT_IN, "talkative", "tests_talkative:KIND")
    monkeypatch.setattr(TalkativeKind, "build", lambda *_: None, raising=False)
    module = type("Module", (), {"KIND": TalkativeKind()})
    monkeypatch.setitem(__import__("sys").modules, "tests_talkative", module)
    file = tmp_path / "c.yaml"
    file.write_text(f'version: 1\nconnections:\n  w: {{kind: talkative, token: "{written}"}}\npipelines: {{}}\n')
    with pytest.raises(ConfigError, match=r"connections\.w\.token: cannot parse") as caught:
        load(file, environ={"TOKEN": f"ab:{CANARY}"})
    assert CANARY not in everything(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o644, 0o604, 0o660, 0o666])
def test_a_key_that_others_can_use_is_refused_and_a_password_is_not(tmp_path: Path, mode: int) -> None:
    Signer.generate("example.org/a").write(tmp_path / "own.key")
    (tmp_path / "password").write_text("canary")
    for name in ("own.key", "password"):
        (tmp_path / name).chmod(mode)
    assert dsn_of(read(tmp_path, dsn="a${file:password}")) == "acanary"
    if mode & 0o077 == 0:
        assert "PRIVATE+KEY" in dsn_of(read(tmp_path, dsn="a${file:own.key}"))
        return
    with pytest.raises(ConfigError, match=r"other users can access the key file own\.key") as refused:
        read(tmp_path, dsn="a${file:own.key}")
    assert f"chmod 600 {tmp_path / 'own.key'}" in f"{refused.value} {refused.value.hint}"
    assert "PRIVATE+KEY" not in f"{refused.value.to_dict()}"

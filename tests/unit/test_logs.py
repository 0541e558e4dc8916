"""Log lines: who may write one, what it looks like, and what never gets into it."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from cdf.errors import CdfError, ConfigError, RowRejected
from cdf.results import Followed, Step
from cdf.sink import Applied, Conflicts
from infra import logs
from infra.logs import LOG_FORMAT_VARIABLE, bind, configure, is_json, log_step
from infra.output import Output

CANARY = "canary-row-4711"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging belongs to the process, and pytest has a use for it too."""
    monkeypatch.delenv(LOG_FORMAT_VARIABLE, raising=False)
    names = (None, "deltarelay", "py4j")
    before = [(one := logging.getLogger(name), one.handlers[:], one.level, one.propagate) for name in names]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    logging.captureWarnings(False)
    logs._handler.json = False


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""  # stdout is for data
    return captured.err.splitlines()


def documents(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(capsys)]


def test_every_json_line_says_when_which_run_and_which_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    run = configure("json")
    bind(pipeline="orders").info("window applied", first_version=6, version=7)
    logging.getLogger("deltarelay.postgres").warning("lease not renewed", extra={"target": "public.orders"})
    first, second = documents(capsys)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "info", "event": "window applied", "run": run, "pipeline": "orders", "first_version": 6, "version": 7,
    }  # fmt: skip
    del second["time"]
    assert second == {"level": "warning", "event": "lease not renewed", "run": run, "target": "public.orders"}


def test_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure("human", long_running=True)
    bind(pipeline="orders").info("window applied", version=7, why="two words")
    bind().warning("stopped\nearly", path="a\x1bb")
    first, second = lines(capsys)
    assert re.fullmatch(r"\d\d:\d\d:\d\d orders: window applied version=7 why='two words'", first)
    assert second[9:] == "warning: 'stopped\\nearly' path='a\\x1bb'"  # one line, and no control characters


@pytest.mark.parametrize(
    ("given", "variable", "long_running", "terminal", "as_json"),
    [
        ("auto", None, True, False, True),
        ("auto", None, True, True, False),
        ("auto", None, False, False, False),
        ("json", None, False, True, True),
        ("human", None, True, False, False),
        (None, None, True, False, True),
        (None, "json", False, True, True),
        ("human", "json", False, False, False),
    ],
)
def test_which_form(
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    variable: str | None,
    long_running: bool,
    terminal: bool,
    as_json: bool,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    if variable:
        monkeypatch.setenv(LOG_FORMAT_VARIABLE, variable)
    configure(given, long_running=long_running)
    assert is_json() is as_json


def test_a_form_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, "xml")
    with pytest.raises(ConfigError, match="'xml' is not a log format"):
        configure()


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ["warning"]),
        ({"long_running": True}, ["info", "warning"]),
        ({"log_format": "json"}, ["info", "warning"]),
        ({"verbose": True}, ["debug", "info", "warning"]),
    ],
)
def test_how_much_is_shown(capsys: pytest.CaptureFixture[str], options: dict[str, Any], shown: list[str]) -> None:
    configure(**options)
    for level in ("debug", "info", "warning"):
        getattr(bind(), level)(f"at {level}")
    assert re.findall(r"at (\w+)", "\n".join(lines(capsys))) == shown


@pytest.mark.parametrize("form", ["human", "json"])
def test_other_loggers_are_heard_with_debug_alone(capsys: pytest.CaptureFixture[str], form: str) -> None:
    def noise() -> None:
        logging.getLogger("py4j.clientserver").error("Error while sending or receiving.")
        logging.getLogger("psycopg").warning("error ignored in rollback: %s", CANARY)
        warnings.warn_explicit(f"{CANARY} is deprecated", UserWarning, "file.py", 1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure(form, verbose=True)
        noise()
        assert lines(capsys) == []
        configure(form, debug=True)
        noise()
    assert len(re.findall(f"Error while sending|{CANARY}", "\n".join(lines(capsys)))) == 3


@pytest.mark.parametrize("form", ["human", "json"])
def test_an_error_is_told_without_what_a_driver_said(capsys: pytest.CaptureFixture[str], form: str) -> None:
    def fail(error: Exception) -> None:
        try:
            try:
                raise ValueError(f"DETAIL: Key (name)=({CANARY}) already exists")
            except ValueError as cause:
                raise error from cause
        except Exception:
            bind(pipeline="orders").error("window failed", version=7, exc_info=True)
            logging.getLogger("deltarelay.postgres").exception("seen from below")

    configure(form, verbose=True)
    fail(RowRejected("orders: column note at version 7", hint="correct it at the source"))
    fail(KeyError(CANARY))
    said = lines(capsys)
    assert len(said) == 4
    assert CANARY not in "".join(said)
    assert "orders: column note at version 7" in said[0]
    assert "row_rejected" in said[0]
    assert "KeyError" in said[2]
    configure(form, debug=True)
    fail(KeyError(CANARY))
    assert CANARY in "".join(lines(capsys))  # what --debug is for, and says so


def test_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    ddl = "alter table t add x int"
    applied = Applied(position=7, inserts=2, deletes=1, ddl=(ddl,), seconds={"stage": 1.0, "apply": 0.5})
    configure("json")
    log_step(bind(pipeline="orders"), Step("window", 6, 7, 9, applied))
    configure("json", verbose=True)
    log_step(bind(pipeline="orders"), Step("load", 7, 7, 9, applied))
    brief, copied, details = documents(capsys)
    assert brief["event"] == "window applied"
    assert (brief["first_version"], brief["version"], brief["inserts"], brief["seconds"]) == (6, 7, 2, 1.5)
    assert copied["event"] == "snapshot copied"
    assert (details["pipeline"], details["version"], details["stage_seconds"], details["ddl"]) == (
        "orders",
        7,
        1.0,
        [ddl],
    )


def test_a_step_of_a_pipeline_that_follows(capsys: pytest.CaptureFixture[str]) -> None:
    followed = Followed(
        pipeline="orders", table="/orders", at=dt.datetime.now(dt.UTC), kind="window", first=6, last=7, rows_in=None,
        rows_applied=3, rows_per_second=6.0, seconds={"stage": 0.2, "total": 0.5}, conflicts=Conflicts(insert_met_row=1),
        rejected=2, ddl=(), position=7, latest_version=8, lag_versions=1, lag_seconds=0.25, query_id=None, run_id=None,
        batch_id=None,
    )  # fmt: skip
    configure(long_running=True, verbose=True)
    log_step(bind(pipeline="orders"), followed)
    applied, details = documents(capsys)
    assert (applied["version"], applied["rows_applied"], applied["seconds"], applied["lag_seconds"]) == (
        7,
        3,
        0.5,
        0.25,
    )
    assert (applied["conflicts"], applied["rejected"], "rows_in" in applied) == (1, 2, False)
    assert (details["event"], details["stage_seconds"]) == ("step done", 0.2)


def test_what_a_command_says_is_a_json_line_where_the_log_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json")
    output = Output("run")
    output.note("starting Spark …")
    assert output.failure("orders", CdfError("no such thing", hint="look again")) == 1
    assert output.progress_console is None
    said, failed = documents(capsys)
    assert (said["level"], said["event"]) == ("info", "starting Spark …")
    assert (failed["level"], failed["pipeline"], failed["error"]) == ("error", "orders", "no such thing")
    assert (failed["hint"], failed["code"]) == ("look again", CdfError.code)


def test_otherwise_it_stays_the_plain_line_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    Output("run").note("starting Spark …")
    assert lines(capsys) == ["starting Spark …"]

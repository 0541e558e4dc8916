"""Which errors are only the echo of an interrupt. tests/acceptance/test_interrupt.py has the processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from cdf.errors import CdfError, Interrupted, KeyViolation, SinkUnavailable, SourceError
from cdf.interrupt import JVM_GONE, SERVER_GONE, Stop, is_echo, may_be_echo
from infra.cli.main import main
from infra.retry import is_retryable
from infra.signals import defer_first_signal, handle_signals, is_interrupt, raise_interrupt_on_signal

KEY = KeyViolation("a key is put twice")


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def during(error: Exception, context: BaseException) -> Exception:
    error.__context__ = context
    return error


JAVA = Py4JJavaError.__new__(Py4JJavaError)  # its constructor asks a JVM


@pytest.mark.parametrize(
    ("error", "possible"),
    [
        (ConnectionRefusedError(), True),
        (ConnectionResetError(), True),
        (EOFError(), True),
        (Py4JError("An error occurred while calling o1.version"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (SourceError("ended", condition=JVM_GONE), True),
        (SourceError("ended", condition=SERVER_GONE), True),
        (caused(SourceError("reading version 1 to 2 failed"), Py4JError("")), True),
        (JAVA, False),
        (caused(SourceError("reading version 1 to 2 failed"), JAVA), False),
        (KEY, False),
        (SinkUnavailable("the database restarts"), False),
        (ValueError(), False),
    ],
)
def test_an_error_of_a_lost_process_may_be_an_echo(error: Exception, possible: bool) -> None:
    assert may_be_echo(error) is possible
    assert is_echo(error, asked=False, cancelled=False) is False
    assert is_echo(error, asked=True, cancelled=False) is possible
    assert is_echo(error, asked=True, cancelled=True) is True, "what was cancelled may fail with anything"


@pytest.mark.parametrize(
    "error",
    [
        during(ConnectionRefusedError(), KeyboardInterrupt()),
        during(KeyViolation("a key is put twice"), KeyboardInterrupt()),
        caused(CdfError("failed"), Interrupted("interrupted")),
        Interrupted("interrupted"),
    ],
)
def test_what_fails_while_an_interrupt_is_handled_is_its_echo(error: Exception) -> None:
    assert is_echo(error, asked=False, cancelled=False) is True


def test_a_chain_that_is_a_ring_is_walked_once() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__context__ = second, first
    assert is_echo(first, asked=True, cancelled=False) is False


def test_a_signal_that_comes_just_after_the_error_explains_it() -> None:
    stop = Stop()
    soon = threading.Timer(0.1, stop.asked.set)
    soon.start()
    assert stop.broke_off(ConnectionRefusedError())
    assert not stop.broke_off(KEY)
    stop.cancel()
    assert stop.broke_off(KEY)


def test_an_interrupted_run_is_not_tried_again() -> None:
    assert Interrupted.transient
    assert not is_retryable(Interrupted("interrupted"))


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_error_behind_which_a_signal_is_hidden(number: int) -> None:
    def work() -> None:
        with suppress(KeyboardInterrupt):
            send(number)
        raise ConnectionRefusedError

    before = signal.getsignal(number)
    with handle_signals():
        with pytest.raises(KeyboardInterrupt), raise_interrupt_on_signal():
            work()
        assert is_interrupt(ConnectionRefusedError())
        with defer_first_signal() as came:
            assert came(), "the signal that was lost"
    with handle_signals():
        assert not is_interrupt(KEY), "the signal was that of another command"
    assert signal.getsignal(number) is before


class Finalized:
    def __del__(self) -> None:
        send(signal.SIGTERM)


def test_an_interrupt_that_python_drops_is_raised_again(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        Finalized()
        time.sleep(5)

    with handle_signals(), pytest.raises(KeyboardInterrupt):
        work()
    assert capsys.readouterr().err == ""


def test_a_signal_that_reaches_a_command_after_the_error_explains_it() -> None:
    explained, soon = False, threading.Timer(0.1, send, [signal.SIGINT])
    with handle_signals(), suppress(KeyboardInterrupt):
        soon.start()
        explained = is_interrupt(ConnectionRefusedError())
        soon.join()
    assert explained


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_ends_it(number: int) -> None:
    with handle_signals(), defer_first_signal() as came:
        assert not came()
        send(number)
        assert came()
        with pytest.raises(KeyboardInterrupt):
            send(number)


@pytest.mark.parametrize(
    "hidden", [lambda: None, lambda: during(ConnectionRefusedError(), KeyboardInterrupt())], ids=["itself", "its echo"]
)
def test_a_command_leaves_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hidden: Callable[[], Exception | None]
) -> None:
    class Left(BaseException):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    def app(*_: object, **__: object) -> None:
        raise hidden() or KeyboardInterrupt

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr("infra.cli.main.app", app)
    with pytest.raises(Left, match="130"):
        main(["run"])
    assert "error: interrupted" in capsys.readouterr().err

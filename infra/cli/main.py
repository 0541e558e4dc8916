"""The ``deltarelay`` command: registers all commands and turns errors into exit codes."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Annotated

import typer

from cdf.errors import Interrupted
from infra.cli.commands import controls, deadletter, feed, notify, plan, position, runs, serve, status, upgrade, verify
from infra.cli.commands.audit import app as audit
from infra.cli.commands.erase import app as erase
from infra.cli.commands.keys import app as keys
from infra.cli.commands.run import command as run
from infra.cli.commands.setup import demo, doctor, init, jars, validate
from infra.cli.commands.storage import app as storage
from infra.logs import configure
from infra.output import FAILED, INTERRUPTED, Output, to_cdf_error
from infra.signals import handle_signals, is_interrupt

__all__ = ["app", "main"]

_GROUPS = {"audit", "deadletter", "erase", "feed", "jars", "keys", "notify", "position", "storage"}
_RESUME = "applied changes are kept and the position is intact: run again to continue"

app = typer.Typer(
    name="deltarelay",
    help="Replicate the changes of Delta Lake tables to PostgreSQL, Kafka or an audit trail: exactly once, in whole "
    "commits.",
    epilog="Exit codes: 0 success, 1 failure, 2 usage or configuration error, 3 success but a difference was found, "
    "75 temporary failure (run again later), 130 interrupted with the position intact.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"deltarelay {version('deltarelay')}")
        raise typer.Exit


@app.callback()
def _accept_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("validate")(validate.validate)
app.command("doctor")(doctor.doctor)
app.add_typer(feed.app, name="feed")
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("runs")(runs.runs)
app.command("serve")(serve.serve)
app.command("pause")(controls.pause)
app.command("resume")(controls.resume)
app.command("approve")(controls.approve)
app.command("verify")(verify.verify)
app.command("upgrade")(upgrade.upgrade)
app.add_typer(audit.app, name="audit")
app.add_typer(erase.app, name="erase")
app.add_typer(keys.app, name="keys")
app.add_typer(position.app, name="position")
app.add_typer(deadletter.app, name="deadletter")
app.add_typer(notify.app, name="notify")
app.add_typer(jars.app, name="jars")
app.add_typer(storage.app, name="storage")


def main(arguments: list[str] | None = None) -> None:
    with handle_signals(last=arguments is None):
        _run_command(arguments)


def _run_command(arguments: list[str] | None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    output = Output(command=_command_name(words), as_json=_wants_json(words), debug="--debug" in words)
    try:
        configure(debug=output.debug)  # `run` calls it again with its log options
        app(words, standalone_mode=True)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # Typer turns Ctrl-C into this
            _exit_interrupted(output)
        raise
    except KeyboardInterrupt:
        _exit_interrupted(output)
    except BrokenPipeError:
        # The reader of our output has exited (`| head`): stdout must accept what Python flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if is_interrupt(error):
            _exit_interrupted(output)
        sys.exit(output.error(to_cdf_error(error)))


def _wants_json(words: list[str]) -> bool:
    return bool({"--json", "--format=json"} & set(words)) or ("--format", "json") in pairwise(words)


def _command_name(words: list[str]) -> str:
    verbs = [word for word in words if not word.startswith("-")]
    depth = 3 if verbs[:2] == ["storage", "lock"] else 2 if verbs[:1] and verbs[0] in _GROUPS else 1
    return " ".join(verbs[:depth]) or "deltarelay"


def _exit_interrupted(output: Output) -> None:
    """Exit at once: a JVM that is still busy with a cancelled job would delay a normal exit."""
    output.debug = False  # a stack trace of Ctrl-C is useless
    output.error(Interrupted("interrupted", hint=_RESUME), exit_code=INTERRUPTED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()

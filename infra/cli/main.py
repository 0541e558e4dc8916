"""The ``deltarelay`` command: which verbs there are, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Annotated

import typer

from cdf.errors import Interrupted
from infra.cli.commands import (
    deadletter,
    demo,
    doctor,
    feed,
    init,
    jars,
    plan,
    position,
    run,
    runs,
    status,
    validate,
    verify,
)
from infra.cli.commands.audit import group as audit
from infra.cli.commands.erase import group as erase
from infra.cli.commands.keys import group as keys
from infra.cli.commands.storage import group as storage
from infra.cli.output import FAILED, INTERRUPTED, Output, in_our_words
from infra.logs import configure
from infra.signals import handle_signals, is_interrupt

__all__ = ["app", "main"]

_GROUPS = {"audit", "deadletter", "erase", "feed", "jars", "keys", "position", "storage"}
_RESUME = "what was applied stays and the position is intact: run again to go on"

app = typer.Typer(
    name="deltarelay",
    help="Carries the changes of Delta Lake tables to where they are needed, exactly once, in whole commits.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 ran fine but found a difference, "
    "75 temporary (run again later), 130 interrupted with the position intact.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"deltarelay {version('deltarelay')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
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
app.command("verify")(verify.verify)
app.add_typer(audit.app, name="audit")
app.add_typer(erase.app, name="erase")
app.add_typer(keys.app, name="keys")
app.add_typer(position.app, name="position")
app.add_typer(deadletter.app, name="deadletter")
app.add_typer(jars.app, name="jars")
app.add_typer(storage.app, name="storage")


def main(arguments: list[str] | None = None) -> None:
    with handle_signals(last=arguments is None):
        _main(arguments)


def _main(arguments: list[str] | None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    output = Output(command=_command(words), as_json=_as_json(words), debug="--debug" in words)
    try:
        configure(debug=output.debug)  # `run` knows more and calls it again
        app(words, standalone_mode=True)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # what Typer makes of Ctrl-C
            _leave(output)
        raise
    except KeyboardInterrupt:
        _leave(output)
    except BrokenPipeError:
        # Whoever read our output has left (`| head`): nothing to say, and nothing more to write
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if is_interrupt(error):
            _leave(output)
        sys.exit(output.error(in_our_words(error)))


def _as_json(words: list[str]) -> bool:
    return bool({"--json", "--format=json"} & set(words)) or ("--format", "json") in pairwise(words)


def _command(words: list[str]) -> str:
    verbs = [word for word in words if not word.startswith("-")]
    deep = 3 if verbs[:2] == ["storage", "lock"] else 2 if verbs[:1] and verbs[0] in _GROUPS else 1
    return " ".join(verbs[:deep]) or "deltarelay"


def _leave(output: Output) -> None:
    """Exit at once: a JVM that is still busy with a cancelled job would keep an ordinary exit waiting."""
    output.debug = False  # the trace of a key that was pressed helps nobody
    output.error(Interrupted("interrupted", hint=_RESUME), exit_code=INTERRUPTED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()

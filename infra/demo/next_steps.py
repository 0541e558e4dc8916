"""The commands that the demo prints at its end: to explore, to write, to stop and to delete."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from infra.demo import history
from infra.demo.folder import TRAIL, DemoFolder
from infra.demo.results import DemoResult
from infra.demo.screen import Screen

__all__ = ["KEYS", "own_command", "print_next_steps", "shorten"]

KEYS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
"""The demo's S3 server accepts any credentials; the user's own are not sent there."""


def print_next_steps(screen: Screen, folder: DemoFolder, result: DemoResult) -> None:
    ours, line = own_command(), screen.line
    config = ["--config", shorten(folder.config)]
    line()
    *first, last = [
        "PostgreSQL",
        *(["S3"] if folder.on_s3 else []),
        *(["Kafka"] if result.kafka is not None else []),
    ]
    running = f"{', '.join(first)} and {last} servers keep" if first else f"{last} server keeps"
    line(f"Explore further (the {running} running)", style="bold")
    line(f"  {result.psql}")
    if result.kafka is not None:
        line(f"  {result.kafka.consume}")
    if folder.on_s3:
        line(f"  export {' '.join(f'{name}={value}' for name, value in KEYS.items())}")
    for verb in ("status", "run", "verify"):
        line(f"  {shlex.join([*ours, verb, *config])}")
    if not folder.on_s3:
        table = shorten(Path(folder.table))
        line(f"  {shlex.join([*ours, 'feed', 'show', table, '--from', '4', '--to', '4'])}")
    else:
        line(f"  {shlex.join([*ours, 'storage', 'show', '--for', 'spark', *config])}")
        table = folder.table
    for words in (
        ["history", TRAIL, "--key", f"customer_id={history.AUDITED}"],
        ["who", TRAIL],
        ["report", TRAIL, "--out", "report.html"],
    ):
        line(f"  {shlex.join([*ours, 'audit', *words, *config])}")
    line(f"  {result.trail.verify}")
    line()
    line("Write to the Delta table while this command follows it", style="bold")
    line(f"  {shlex.join([*ours, 'run', '--follow', *config])}")
    if result.kafka is not None:
        line(f"  {result.kafka.consume} --follow")
    line(f"  {table}")
    line()
    line("Stop the servers and delete everything", style="bold")
    line(f"  {result.stop}")
    line(f"  {shlex.join(['rm', '-r', shorten(folder.path)])}")


def shorten(path: Path) -> str:
    """The path relative to the current directory, where it is below it."""
    try:
        return str(path.relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def own_command() -> list[str]:
    """How this command was called, for commands that can be copied."""
    program = Path(sys.argv[0])
    if program.name != "deltarelay":
        return [sys.executable, "-m", "infra.cli.main"]
    found = shutil.which("deltarelay")
    if found is not None and program.exists() and program.samefile(found):
        return ["deltarelay"]
    return [shorten(program.absolute())]

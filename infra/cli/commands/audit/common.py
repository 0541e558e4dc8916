"""What the commands of ``deltarelay audit`` share."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import CdfError, ConfigError, TargetNotReady
from cdf.result import Result
from infra.cli.output import DIFFERENCE, DONE, FAILED, Output, in_our_words, overall
from infra.cli.session import chosen, spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.trail.trail import Trail
    from audit.verification import TrailVerification, Verified
    from connectors.delta_audit.sink import DeltaAuditSink
    from infra.config.models import Project

__all__ = [
    "Checkpoints",
    "Kept",
    "One",
    "Origin",
    "StateFolder",
    "brought",
    "each_trail",
    "loaded",
    "reading",
    "told",
    "trail_of",
    "trail_sink",
    "verdict",
    "visible",
    "worst",
]

One = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline that writes the trail.")]
Checkpoints = Annotated[
    list[Path] | None, typer.Option("--anchor", help="A checkpoint that you have kept; may be given several times.")
]
Origin = Annotated[
    str | None, typer.Option("--origin", help="The trail that it has to be, as its checkpoints name it.")
]
StateFolder = Annotated[
    Path | None,
    typer.Option("--state", help="Folder where `audit verify` keeps what it has verified; not the trail's."),
]


def each_trail(
    output: Output,
    config: Path,
    wanted: Sequence[str] | None,
    work: Callable[[str, Trail], tuple[Result, int]],
    *,
    before: Callable[[Mapping[str, Trail]], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """One session, every trail by itself; ends the command. ``after``: once the result was shown."""
    project = loaded(config)
    kinds = {name: project.connections[one.sink.connection].kind for name, one in project.pipelines.items()}
    names = [name for name in chosen(project, wanted) if wanted or kinds[name] == "delta_audit"]
    if not names:
        raise ConfigError("no pipeline writes an audit trail", hint="a connection of kind: delta_audit keeps one")
    results, codes = [], []
    with spark_session(output, project):
        if before is not None:
            before({name: trail_of(project, name) for name in names})
        for name in names:
            try:
                with raise_interrupt_on_signal():
                    result, code = work(name, trail_of(project, name))
                entry = {"pipeline": name, "ok": code == DONE, **result.to_dict()}
            except BrokenPipeError:
                raise
            except Exception as error:
                failure = in_our_words(error)
                code = output.failure(name, failure)
                entry = {"pipeline": name, "ok": False, "error": failure.to_dict()}
            results.append(entry)
            codes.append(code)
    code = worst(codes)
    output.result({"pipelines": results}, exit_code=code)
    if after is not None:
        after()
    raise typer.Exit(code)


def worst(codes: Sequence[int]) -> int:
    """Of several trails: what was found in one is hidden by no other that could not be looked at."""
    return DIFFERENCE if DIFFERENCE in codes else overall(codes)


def loaded(config: Path) -> Project:
    from infra.config.load import load

    return load(config)


def trail_of(project: Project, name: str) -> Trail:
    """Of the session that was made for this command."""
    return trail_sink(project, name).trail


def trail_sink(project: Project, name: str) -> DeltaAuditSink:
    from connectors.delta_audit.sink import DeltaAuditSink

    sink = project.build_sink(name)
    if not isinstance(sink, DeltaAuditSink):
        raise TargetNotReady(
            f"{name} writes no audit trail", hint="name a pipeline whose connection is kind: delta_audit"
        )
    return sink


def told(at: dt.datetime | None) -> str:
    return "-" if at is None else at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def visible(text: str) -> str:
    """What a terminal would act upon, or not show, is spelled out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@contextmanager
def reading(trail: Trail) -> Iterator[None]:
    """Nothing of a trail that somebody has altered is believed to have a form: what then fails says so."""
    try:
        yield
    except (CdfError, BrokenPipeError):
        raise
    except Exception as error:
        from audit.errors import unreadable

        raise unreadable(trail.path, error) from error


# ── verifying ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Kept:
    """What ``audit verify`` found intact of a trail: with whoever verifies, never where the trail's writers can change it.

    By the place of the trail: one that was made anew there is held against what was there before.
    """

    def __init__(self, folder: Path | None, path: str) -> None:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
        place = path if "://" in path else str(Path(path).resolve())
        self.file = (folder or home / "deltarelay/verified") / f"{sha256(place.encode()).hexdigest()[:32]}.json"

    def read(self) -> Verified | None:
        from audit.verification import Verified

        try:
            return Verified.from_json(self.file.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.file} is not what a verification left there",
                hint="remove it once it is known why: the next verification then has nothing to continue",
            ) from None

    def write(self, text: str, output: Output) -> None:
        beside = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.write_text(text)
            beside.replace(self.file)
        except OSError as error:
            output.note(f"what was verified cannot be kept in {self.file}: {error.strerror}")

    def compare(self, name: str, known: Verified | None, found: TrailVerification, output: Output) -> None:
        """Says where it stands what another trail was found to be, which has now been put in its place, or begun anew."""
        if known is not None and known.origin != found.origin:
            output.note(f"{name}: where it was rightly begun anew, remove {self.file}, which is of the one before")


def verdict(output: Output, name: str, found: TrailVerification) -> int:
    """The exit code, with a word on each anchor that could not be asked."""
    failed = [output.failure(name, one.error) for one in found.unreachable]
    return DIFFERENCE if not found.intact else FAILED if failed else DONE


def brought(path: Path) -> str:
    """The checkpoint in a file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the checkpoint {path} cannot be read", hint="`deltarelay audit checkpoint` publishes them"
        ) from error

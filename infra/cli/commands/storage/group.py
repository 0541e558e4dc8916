"""``deltarelay storage``: tables on S3, and the lock table that keeps the commits of several writers apart. No JVM."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import ConfigError
from infra.cli.commands.storage import show as storage_show
from infra.cli.confirm import confirm, require_terminal
from infra.cli.output import DIFFERENCE, DONE, Output
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json
from infra.s3.lock.evidence import YOUNG_SECONDS

if TYPE_CHECKING:
    from infra.s3.lock.entries import LockEntries
    from infra.s3.lock.table import Deviation
    from infra.s3.model import Storage

__all__ = ["app"]

app = typer.Typer(help="Tables on S3: the lock table of their commits, and the rights they need.", no_args_is_help=True)
lock = typer.Typer(help="Make, check and repair the lock table that keeps commits apart.", no_args_is_help=True)
app.add_typer(lock, name="lock")
app.command("show")(storage_show.show)


class For(StrEnum):
    write = "write"
    read = "read"


Name = Annotated[str | None, typer.Option("--table", help="The lock table; default: storage.commits.table.")]
Region = Annotated[str | None, typer.Option("--region", help="Its region; default: storage.commits.region.")]
Endpoint = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="URL", help="A server that stands for AWS; S3 too, unless the file names one."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]
Table = Annotated[str | None, typer.Argument(help="Only this Delta table, such as s3a://BUCKET/PATH.")]
MinAge = Annotated[
    float,
    typer.Option("--min-age-seconds", min=0, help="Leave younger entries alone: their writers are about to finish."),
]


# ── template ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def template(as_json: Json = False, debug: Debug = False) -> None:
    """Print a CloudFormation template: the lock table, and policies for reading, writing, auditing and keeping it."""
    from importlib.resources import files

    output = Output("storage template", as_json, debug)
    text = (files("infra.s3") / "template.yaml").read_text()
    if not as_json:
        print(text, end="")  # to the letter: no console may wrap it
    output.result({"template": text})


# ── lock create, lock check ──────────────────────────────────────────────────────────────────────────────────────────


@lock.command()
def create(
    table: Name = None,
    region: Region = None,
    endpoint: Endpoint = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make the lock table, or complete the one that is there: TTL, point-in-time recovery, tags.

    Exit code 3: it was there, and something about it is not as it should be and was left to you.
    """
    from infra.s3.lock.table import create as make

    output = Output("storage lock create", as_json, debug)
    found = make(_storage(config, table, region, endpoint))
    name = f"the lock table {found.table} in {found.region}"
    if found.made:
        output.line(f"{name} was made")
    else:
        output.line(f"{name} was there already; added: {', '.join(found.completed) or 'nothing'}")
    _tell(output, found.deviations)
    _end(output, found, DIFFERENCE if found.deviations else DONE)


@lock.command()
def check(
    use: Annotated[For, typer.Option("--for", help="What these credentials are to do with tables.")] = For.write,
    table: Name = None,
    region: Region = None,
    endpoint: Endpoint = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Name everything about the lock table, and these credentials' rights to it, that Delta needs otherwise.

    Writes nothing. Exit code 3: something was found.
    """
    from infra.s3.lock.check import check as look

    output = Output("storage lock check", as_json, debug)
    found = look(_storage(config, table, region, endpoint), use=use.value)
    _tell(output, found.deviations)
    if not found.deviations:
        output.line(f"the lock table {found.table} in {found.region} is as it should be")
    _end(output, found, DIFFERENCE if found.deviations else DONE)


_EXPECTED = {
    "table": "must be 3 to 255 letters, digits, dots, dashes or underscores",
    "region": "must be a region such as eu-west-1",
    "endpoint": "must be a URL such as https://dynamodb.example.com:8000, without user, path or query",
}


def _tell(output: Output, deviations: tuple[Deviation, ...]) -> None:
    for one in deviations:
        output.line(f"{one.severity}: {one.found}")
        output.line(f"  help: {one.fix}")


# ── lock list, lock repair, lock forget ──────────────────────────────────────────────────────────────────────────────


@lock.command("list")
def list_(
    address: Table = None,
    min_age_seconds: MinAge = YOUNG_SECONDS,
    table: Name = None,
    region: Region = None,
    endpoint: Endpoint = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show each table's latest entry, and the commits that were begun and not finished, with their age.

    Exit code 3: there are some, or one table is written under two addresses, which do not exclude each other.
    """
    from infra.s3.lock.entries import read_entries

    output = Output("storage lock list", as_json, debug)
    found = read_entries(_storage(config, table, region, endpoint), address, young_seconds=min_age_seconds)
    _show(output, found)
    _end(output, found, DONE if found.sound else DIFFERENCE)


@lock.command()
def repair(
    address: Table = None,
    drop_lost: Annotated[
        bool,
        typer.Option("--drop-lost", help="Remove the entries of commits whose files are gone, so that reading works."),
    ] = False,
    min_age_seconds: MinAge = YOUNG_SECONDS,
    yes: Yes = False,
    table: Name = None,
    region: Region = None,
    endpoint: Endpoint = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Finish the commits that dead writers have left, just as Delta does when it comes by. Overwrites no commit.

    Exit code 3: something is left to you, or a commit is lost.
    """
    from infra.s3.lock.entries import read_entries
    from infra.s3.lock.repair import repair as mend

    output = Output("storage lock repair", as_json, debug)
    storage = _storage(config, table, region, endpoint)
    if drop_lost and not yes:
        require_terminal("storage lock repair --drop-lost")
        seen = read_entries(storage, address, young_seconds=min_age_seconds)
        lost = [one for one in seen.open if one.state == "lost"]
        for one in lost:
            output.note(f"{one.table}: version {one.version} is lost; its entry will be removed")
        if lost:
            confirm()
    found = mend(storage, address, young_seconds=min_age_seconds, lost="drop" if drop_lost else "leave")
    for done in found.entries:
        output.line(f"{done.table}: version {done.version}: {done.outcome.replace('_', ' ')}")
        if done.advice:
            output.line(f"  help: {done.advice}")
    if not found.entries:
        output.line("nothing to repair")
    _end(output, found, DONE if found.whole else DIFFERENCE)


@lock.command()
def forget(
    address: Annotated[str, typer.Argument(help="The Delta table, such as s3a://BUCKET/PATH.")],
    force: Annotated[
        bool, typer.Option("--force", help="Even though the table is there: two writers may then write one version.")
    ] = False,
    yes: Yes = False,
    table: Name = None,
    region: Region = None,
    endpoint: Endpoint = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove the entries of a table that was deleted: needed before another one is made in its place.

    Refuses while the table has commits. Exit code 3: some entries changed meanwhile and were left.
    """
    from infra.s3.lock.entries import list_entries
    from infra.s3.lock.repair import check_forgettable
    from infra.s3.lock.repair import forget as clear
    from infra.s3.lock.table import connect

    output = Output("storage lock forget", as_json, debug)
    storage = _storage(config, table, region, endpoint)
    if not yes:
        require_terminal("storage lock forget")
        if not force:
            check_forgettable(storage, address)
        there, client = connect(storage)
        number = len(list_entries(client, there.table, address))
        output.note(f"{number} {'entry' if number == 1 else 'entries'} of {address} will be removed")
        confirm()
    found = clear(storage, address, commits="ignore" if force else "refuse")
    output.line(f"{found.table}: {found.removed} removed, {found.kept} kept")
    _end(output, found, DIFFERENCE if found.kept else DONE)


def _show(output: Output, found: LockEntries) -> None:
    tables = [
        (one.table, one.entries, one.latest_complete, one.expires_at and f"{one.expires_at:%Y-%m-%d %H:%MZ}")
        for one in found.tables
    ]
    if tables:
        output.table(("table", "entries", "latest complete", "expires"), tables, numbers=("entries", "latest complete"))
    else:
        output.line(f"the lock table {found.lock_table} has no entries")
    for one in found.open:
        age = "age unknown" if one.age_seconds is None else f"{one.age_seconds:.0f} s old"
        output.line(f"{one.table}: version {one.version} is not finished ({one.state.replace('_', ' ')}, {age})")
        output.line(f"  help: {one.advice}")
    for clash in found.clashes:
        output.line(f"one table under {len(clash)} addresses: {', '.join(clash)}")
        output.line("  help: their writers do not exclude each other: use s3a:// everywhere")


# ── what they share ──────────────────────────────────────────────────────────────────────────────────────────────────


def _storage(config: Path, table: str | None, region: str | None, endpoint: str | None) -> Storage:
    """The file's ``storage`` block with what the options say; the options alone where there is no file yet."""
    from pydantic import ValidationError

    from infra.s3.model import Storage

    storage = Storage()
    if config != DEFAULT_CONFIG or config.exists():
        from infra.config.load import load

        storage = load(config, look_for_tables=False).storage
    told = {name: value for name, value in (("table", table), ("region", region), ("endpoint", endpoint)) if value}
    if not told:
        return storage
    given: dict[str, Any] = storage.model_dump(exclude_none=True)
    before = given.get("commits", {})
    if before.get("kind") != "dynamodb" and table is None:
        return storage  # there is no lock table to say more about, which is what its command will tell
    given["commits"] = {**(before if before.get("kind") == "dynamodb" else {"kind": "dynamodb"}), **told}
    if endpoint and not given.get("s3", {}).get("endpoint"):
        given["s3"] = {**given.get("s3", {}), "endpoint": endpoint, "path_style": True}
    try:
        return Storage.model_validate(given)
    except ValidationError as error:
        wrong = sorted({str(place) for one in error.errors() for place in one["loc"]} & told.keys())
        raise ConfigError(
            "; ".join(f"--{name} {_EXPECTED[name]}" for name in wrong) or "the options contradict the file",
            hint="correct it, or leave it out to take what the file says",
        ) from error


def _end(output: Output, found: Any, code: int) -> None:
    output.result(found, exit_code=code)
    raise typer.Exit(code)

"""``deltarelay storage lock list``, ``repair`` and ``forget``: the entries of the lock table, one for each commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.commands.storage.lock.options import LockOptions, load_storage
from infra.cli.confirm import confirm, require_terminal
from infra.cli.options import Yes, expand_options
from infra.output import DIFFERENCE, DONE, Output
from infra.s3.lock.evidence import YOUNG_SECONDS

if TYPE_CHECKING:
    from infra.s3.lock.entries import LockEntries

__all__ = ["forget", "list_", "repair"]

OnlyTable = Annotated[str | None, typer.Argument(help="Only this Delta table, such as s3a://BUCKET/PATH.")]
MinAge = Annotated[
    float,
    typer.Option("--min-age-seconds", min=0, help="Ignore younger entries: their writers are probably still running."),
]


@expand_options
def list_(
    options: LockOptions,
    address: OnlyTable = None,
    min_age_seconds: MinAge = YOUNG_SECONDS,
) -> None:
    """Show each table's latest entry, and unfinished commits with their age.

    Exit code 3: there are unfinished commits, or one table has two addresses, whose writers do not exclude each other.
    """
    from infra.s3.lock.entries import read_entries

    output = Output("storage lock list", options.as_json, options.debug)
    found = read_entries(load_storage(options), address, young_seconds=min_age_seconds)
    _print_entries(output, found)
    output.finish(found, DONE if found.sound else DIFFERENCE)


@expand_options
def repair(
    options: LockOptions,
    address: OnlyTable = None,
    drop_lost: Annotated[
        bool,
        typer.Option(
            "--drop-lost", help="Remove the entries of commits whose files no longer exist, so that reading works."
        ),
    ] = False,
    min_age_seconds: MinAge = YOUNG_SECONDS,
    yes: Yes = False,
) -> None:
    """Finish the commits of writers that have died, as Delta does when it finds them. Overwrites no commit.

    Exit code 3: an entry could not be repaired, or a commit is lost.
    """
    from infra.s3.lock.entries import read_entries
    from infra.s3.lock.repair import repair as repair_entries

    output = Output("storage lock repair", options.as_json, options.debug)
    storage = load_storage(options)
    if drop_lost and not yes:
        require_terminal("storage lock repair --drop-lost")
        current = read_entries(storage, address, young_seconds=min_age_seconds)
        lost = [entry for entry in current.open if entry.state == "lost"]
        for entry in lost:
            output.note(f"{entry.table}: version {entry.version} is lost; its entry will be removed")
        if lost:
            confirm()
    result = repair_entries(storage, address, young_seconds=min_age_seconds, lost="drop" if drop_lost else "leave")
    for repaired in result.entries:
        output.line(f"{repaired.table}: version {repaired.version}: {repaired.outcome.replace('_', ' ')}")
        if repaired.advice:
            output.line(f"  help: {repaired.advice}")
    if not result.entries:
        output.line("nothing to repair")
    output.finish(result, DONE if result.whole else DIFFERENCE)


@expand_options
def forget(
    options: LockOptions,
    address: Annotated[str, typer.Argument(help="The Delta table, such as s3a://BUCKET/PATH.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Remove them even if the table still exists: two writers could then write the same version."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove the entries of a deleted table; required before a new table is created at the same address.

    The command refuses while the table has commits. Exit code 3: some entries changed in the meantime and were kept.
    """
    from infra.s3.lock.entries import list_entries
    from infra.s3.lock.repair import check_forgettable
    from infra.s3.lock.repair import forget as remove_entries
    from infra.s3.lock.table import connect

    output = Output("storage lock forget", options.as_json, options.debug)
    storage = load_storage(options)
    if not yes:
        require_terminal("storage lock forget")
        if not force:
            check_forgettable(storage, address)
        lock_table, client = connect(storage)
        number = len(list_entries(client, lock_table.table, address))
        output.note(f"{number} {'entry' if number == 1 else 'entries'} of {address} will be removed")
        confirm()
    result = remove_entries(storage, address, commits="ignore" if force else "refuse")
    output.line(f"{result.table}: {result.removed} removed, {result.kept} kept")
    output.finish(result, DIFFERENCE if result.kept else DONE)


def _print_entries(output: Output, found: LockEntries) -> None:
    rows = [
        (table.table, table.entries, table.latest_complete, table.expires_at and f"{table.expires_at:%Y-%m-%d %H:%MZ}")
        for table in found.tables
    ]
    if rows:
        output.table(("table", "entries", "latest complete", "expires"), rows, numbers=("entries", "latest complete"))
    else:
        output.line(f"the lock table {found.lock_table} has no entries")
    for entry in found.open:
        age = "age unknown" if entry.age_seconds is None else f"{entry.age_seconds:.0f} s old"
        output.line(f"{entry.table}: version {entry.version} is not finished ({entry.state.replace('_', ' ')}, {age})")
        output.line(f"  help: {entry.advice}")
    for addresses in found.clashes:
        output.line(f"one table under {len(addresses)} addresses: {', '.join(addresses)}")
        output.line("  help: their writers do not exclude each other: use s3a:// everywhere")

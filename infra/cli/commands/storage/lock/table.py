"""``deltarelay storage lock create`` and ``check``: the lock table itself."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.commands.storage.lock.options import LockOptions, load_storage
from infra.cli.options import expand_options
from infra.output import DIFFERENCE, DONE, Output

if TYPE_CHECKING:
    from infra.s3.lock.table import Deviation

__all__ = ["check", "create"]


class Use(StrEnum):
    write = "write"
    read = "read"


@expand_options
def create(options: LockOptions) -> None:
    """Create the lock table, or add what an existing one lacks: TTL, point-in-time recovery, tags.

    Exit code 3: an existing table has a problem that you must fix yourself.
    """
    from infra.s3.lock.table import create as create_table

    output = Output("storage lock create", options.as_json, options.debug)
    result = create_table(load_storage(options))
    name = f"the lock table {result.table} in {result.region}"
    if result.made:
        output.line(f"{name} was created")
    else:
        output.line(f"{name} already exists; added: {', '.join(result.completed) or 'nothing'}")
    _print_deviations(output, result.deviations)
    output.finish(result, DIFFERENCE if result.deviations else DONE)


@expand_options
def check(
    options: LockOptions,
    use: Annotated[
        Use, typer.Option("--for", help="What these credentials are used for: to write or to read tables.")
    ] = Use.write,
) -> None:
    """Report every problem of the lock table, and every permission that these credentials lack. Writes nothing.

    Exit code 3: a problem was found.
    """
    from infra.s3.lock.check import check as check_table

    output = Output("storage lock check", options.as_json, options.debug)
    result = check_table(load_storage(options), use=use.value)
    _print_deviations(output, result.deviations)
    if not result.deviations:
        output.line(f"the lock table {result.table} in {result.region} has no problems")
    output.finish(result, DIFFERENCE if result.deviations else DONE)


def _print_deviations(output: Output, deviations: tuple[Deviation, ...]) -> None:
    for deviation in deviations:
        output.line(f"{deviation.severity}: {deviation.found}")
        output.line(f"  help: {deviation.fix}")

"""``deltarelay erase split-keys``: writes the keys of the register to separate files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cdf.result import Result
from infra.cli.commands.erase.context import ErasureContext
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["KeysSplit", "split_keys"]


@dataclass(frozen=True, slots=True)
class KeysSplit(Result):
    watch_key_file: str
    seal_key_file: str
    watch_key: str
    """The id of the key, which reveals nothing about it."""
    seal_key: str


def split_keys(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The folder for watch.key and seal.key; existing files are not overwritten."
        ),
    ],
    new: Annotated[
        bool, typer.Option("--new", help="Create new keys; the current ones must stay configured as former keys.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the watch key and the seal key to separate files, to store and replace them separately. Starts no JVM.

    The watch key recognizes erased people; the seal key encrypts identifiers in the register. Without --new the files
    contain the current keys: what was recorded and encrypted before stays valid.
    """
    from audit.erasure.register.secrets import SealKey, WatchKey

    output = Output("erase split-keys", as_json, debug)
    context = ErasureContext(config)
    watch, seal = (WatchKey.generate(), SealKey.generate()) if new else context.keys.in_use
    result = KeysSplit(str(folder / "watch.key"), str(folder / "seal.key"), watch.id, seal.id)
    watch.write(folder / "watch.key")
    seal.write(folder / "seal.key")
    output.line(f"watch key  {result.watch_key_file}  (erasure.watch_key: the only key that running pipelines needs)")
    output.line(
        f"seal key   {result.seal_key_file}  (erasure.seal_key: needed to erase people; without it the register's"
    )
    output.line("           identifiers are lost)")
    if new:
        output.line(
            "next: move the configured keys to former_watch_keys and former_seal_keys, on every machine, before a run"
        )
    output.result(result)

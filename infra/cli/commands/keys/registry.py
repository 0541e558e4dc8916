"""``deltarelay keys init``, ``upgrade`` and ``status``: the key registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.cli.commands.keys.context import KeysContext, format_minute
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output, format_count

if TYPE_CHECKING:
    from audit.encryption.key_registry import Epoch

__all__ = ["init", "status", "upgrade"]


def init(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Create the registry under the configured root key; does not change an existing registry."""
    from audit.encryption.key_registry.errors import other_root_error

    output = Output("keys init", as_json, debug)
    context = KeysContext(config)
    registry = context.open_registry()
    registry.prepare()
    found = registry.read_status()
    root = context.root.name
    if found.epochs[0].root != root:
        raise other_root_error(found.epochs[0].root, root)
    output.line(f"key registry {context.settings.schema_name}: epoch {found.epochs[0].epoch}, root key {root}")
    output.result({"epoch": found.epochs[0].epoch, "root": root})


def upgrade(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Authenticate the links of a registry that an earlier release created. Needed once; repeating it changes nothing.

    The command trusts every link from an identifier to a person: first make sure that the links were not altered. Runners of
    the earlier release can no longer create keys afterwards. Take a new backup: `keys restore-check` rejects earlier ones.
    """
    output = Output("keys upgrade", as_json, debug)
    context = KeysContext(config)
    links = context.open_registry().upgrade()
    root = context.root.name
    output.line(f"{format_count(links, 'link')} authenticated under the root key {root}")
    output.line("next: take a backup (`deltarelay keys backup`)")
    output.result({"links": links, "root": root})


def status(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Show epochs, the number of active keys, and from which day on older backups are unreadable."""
    from audit.encryption.key_registry.errors import empty_registry_error

    output = Output("keys status", as_json, debug)
    context = KeysContext(config)
    found, configured = context.open_registry().read_status(), context.root.name
    if not found.epochs:
        raise empty_registry_error()
    output.table(
        ("epoch", "root key", "began", "ended", "root key destroyed", "keys"),
        [
            (
                epoch.epoch,
                epoch.root,
                format_minute(epoch.began_at),
                format_minute(epoch.ended_at),
                epoch.root_gone_on,
                epoch.keys,
            )
            for epoch in found.epochs
        ],
        numbers=("epoch", "keys"),
    )
    output.line()
    output.line(
        f"{format_count(found.subjects, 'subject')}, {format_count(found.living, 'active key')}, {found.shredded} destroyed"
    )
    for epoch in found.epochs:
        if epoch.ended_at is not None:
            output.line(_format_backups(epoch))
    if found.unlinked:
        output.note(
            f"warning: {format_count(found.unlinked, 'active key')} without any identifier: links were removed from the "
            "registry, and no erasure can destroy these keys"
        )
    if len([epoch for epoch in found.epochs if epoch.ended_at is None]) > 1:
        output.note("warning: a rotation is not finished: run `deltarelay keys rotate` again")
    elif found.epochs[0].root != configured:
        output.note(f"warning: the configured root key is {configured}, which cannot open the registry")
    output.result({**found.to_dict(), "configured_root": configured})


def _format_backups(epoch: Epoch) -> str:
    ended = format_minute(epoch.ended_at)
    if epoch.root_gone_on is None:
        return (
            f"backups from before {ended} are readable with the root key {epoch.root}: destroy it, then run `deltarelay "
            f"keys root-gone {epoch.root} DATE`"
        )
    return f"backups of epoch {epoch.epoch}, from before {ended}, are unreadable from {epoch.root_gone_on} on"

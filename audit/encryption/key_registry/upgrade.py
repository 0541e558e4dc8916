"""Upgrade of a registry of an earlier release, whose links had no MACs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from audit.encryption.aead import KEY_BYTES
from audit.encryption.key_registry.batches import split
from audit.encryption.key_registry.bindings import lookup_key_binding, mac_key_binding
from audit.encryption.key_registry.errors import empty_registry_error
from audit.encryption.key_registry.identifiers import update_macs
from audit.encryption.key_registry.tables import UPGRADE, UPGRADE_CONSTRAINTS
from audit.encryption.root_keys import RootRefused
from cdf.errors import ConfigError, VerificationError

if TYPE_CHECKING:
    from audit.database import Transaction
    from audit.encryption.key_registry.key_ring import KeyRing
    from audit.encryption.root_keys import Root

__all__ = ["add_macs"]


def add_macs(work: Transaction, ring: KeyRing) -> int:
    """Give every link a MAC, once; returns the number of links. Links that were altered before stay altered."""
    work.execute("lock table {epoch} in exclusive mode")
    epochs = work.rows("select epoch, root from {epoch} where ended_at is null order by epoch desc")
    if not epochs:
        raise empty_registry_error()
    if len(epochs) > 1:
        raise ConfigError(
            "a rotation of the key registry has begun and is not finished",
            hint="complete it with `deltarelay keys rotate` of the release that began it, then upgrade",
        )
    epoch, root_name = int(epochs[0][0]), str(epochs[0][1])
    work.execute(UPGRADE)
    row = work.row("select mac from {epoch} where epoch = %s", [epoch])
    root, has_macs = ring.select_root(root_name), row is not None and row[0] is not None
    _upgrade_lookup_key(work, root, has_macs=has_macs)
    if has_macs:
        return 0
    mac_key = os.urandom(KEY_BYTES)
    work.execute(
        "update {epoch} set mac = %s where epoch = %s", [root.wrap(mac_key, context=mac_key_binding(epoch)), epoch]
    )
    work.execute("set local statement_timeout = 0")
    links = [(bytes(lookup), bytes(token)) for lookup, token in work.rows("select lookup, token from {identifier}")]
    for batch in split(links):
        update_macs(work, epoch, mac_key, batch)
    work.execute(UPGRADE_CONSTRAINTS)
    return len(links)


def _upgrade_lookup_key(work: Transaction, root: Root, *, has_macs: bool) -> None:
    """Wrap the lookup key with the binding of registries with MACs.

    Raises VerificationError where it has that binding and the MACs are gone: they may have been removed to have altered
    links authenticated."""
    row = work.row("select epoch, wrapped from {lookup_key}")
    if row is None:
        raise empty_registry_error()
    epoch, wrapped = row
    try:
        lookup_key = root.unwrap(wrapped, context=f"deltarelay lookup key {epoch}")
    except RootRefused:
        root.unwrap(wrapped, context=lookup_key_binding(epoch))
        if has_macs:
            return
        raise VerificationError(
            "the MACs of the key registry are missing: it was altered",
            hint="restore a backup that `deltarelay keys restore-check` approves",
        ) from None
    work.execute("update {lookup_key} set wrapped = %s", [root.wrap(lookup_key, context=lookup_key_binding(epoch))])

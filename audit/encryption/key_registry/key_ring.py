"""The keys above the keys of people: unwraps lookup, MAC and epoch keys by the root key, and caches them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from audit.encryption.aead import KEY_BYTES, DecryptionFailed, Decryptor, commitment
from audit.encryption.key_registry.bindings import (
    SHARD_COUNTS,
    key_binding,
    lookup_key_binding,
    mac_key_binding,
    shard_binding,
    shard_of,
)
from audit.encryption.key_registry.errors import (
    empty_registry_error,
    not_upgraded_error,
    other_root_error,
    translate_missing_macs,
)
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.root_keys import Root

__all__ = ["KeyRing", "begin_epoch", "find_newest_epoch"]


class KeyRing:
    """``root``: the root key of the newest epoch. During a rotation callers pass the new root key as well."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._lookup_key: bytes | None = None
        self._mac_keys: dict[int, bytes] = {}
        self._shard_counts: dict[int, int] = {}
        self._epoch_keys: dict[tuple[int, int], bytes] = {}
        self._decryptor = Decryptor()  # few epoch keys, so few cached ciphers

    def change_root(self, root: Root, epoch: int) -> None:
        """Continue under the root key of this epoch; forget the keys of earlier epochs."""
        self.root = root
        self._epoch_keys = {place: key for place, key in self._epoch_keys.items() if place[0] == epoch}
        self._mac_keys = {number: key for number, key in self._mac_keys.items() if number == epoch}
        self._decryptor = Decryptor()

    def select_root(self, name: str, new: Root | None = None) -> Root:
        """The root key of this name, out of ``new`` and the one in use."""
        for root in (new, self.root):
            if root is not None and root.name == name:
                return root
        raise other_root_error(name, self.root.name)

    def lookup_key(self, database: Database, new: Root | None = None) -> bytes:
        """Reads in a transaction of its own."""
        if self._lookup_key is None:
            with translate_missing_macs(), database.transaction() as work:
                row = work.row("select epoch, wrapped, root, mac from {lookup_key} join {epoch} using (epoch)")
            if row is None:
                raise empty_registry_error()
            epoch, wrapped, name, mac = row
            if mac is None:
                raise not_upgraded_error()
            self._lookup_key = self.select_root(name, new).unwrap(wrapped, context=lookup_key_binding(epoch))
        return self._lookup_key

    def mac_key(self, work: Transaction, epoch: int, new: Root | None = None) -> bytes:
        if epoch not in self._mac_keys:
            row = work.row("select mac, root from {epoch} where epoch = %s", [epoch])
            if row is None or row[0] is None:
                raise VerificationError(
                    f"the registry has links of epoch {epoch}, but the key of their MACs is missing",
                    hint="restore the registry",
                )
            root = self.select_root(row[1], new)
            self._mac_keys[epoch] = root.unwrap(row[0], context=mac_key_binding(epoch))
        return self._mac_keys[epoch]

    def epoch_key(self, work: Transaction, epoch: int, token: bytes, new: Root | None = None) -> bytes:
        """The key of the epoch that wraps the keys of this person."""
        if epoch not in self._shard_counts:
            row = work.row("select count(*) from {shard} where epoch = %s", [epoch])
            if row is None or row[0] not in SHARD_COUNTS:
                raise _missing_epoch_key_error(epoch)
            self._shard_counts[epoch] = row[0]
        shard = shard_of(token, self._shard_counts[epoch])
        if (epoch, shard) not in self._epoch_keys:
            row = work.row(
                "select wrapped, root from {shard} join {epoch} using (epoch) where epoch = %s and shard = %s",
                [epoch, shard],
            )
            if row is None:
                raise _missing_epoch_key_error(epoch)
            root = self.select_root(row[1], new)
            self._epoch_keys[epoch, shard] = root.unwrap(row[0], context=shard_binding(epoch, shard))
        return self._epoch_keys[epoch, shard]

    def unwrap_person_key(
        self, work: Transaction, place: tuple[bytes, bytes, str], epoch: int, wrapped: bytes, committed: bytes
    ) -> bytes:
        """``place``: key id, token and class. Raises VerificationError where the row is not the one that was written."""
        key_id, token, _ = place
        epoch_key = self.epoch_key(work, epoch, token)
        try:
            key = self._decryptor.decrypt(epoch_key, wrapped, associated_data=key_binding(*place))
        except DecryptionFailed:
            key = None
        if key is None or commitment(key) != committed:
            raise VerificationError(
                f"the key {key_id.hex()} in the registry is not the one that was created",
                hint="the registry was altered: restore it, and check it with `deltarelay keys restore-check`",
                key_id=key_id.hex(),
            )
        return key


def find_newest_epoch(work: Transaction) -> tuple[int, str]:
    """The number of the newest epoch and the name of its root key."""
    row = work.row("select epoch, root from {epoch} order by epoch desc limit 1")
    if row is None:
        raise empty_registry_error()
    return int(row[0]), str(row[1])


def begin_epoch(work: Transaction, epoch: int, root: Root) -> None:
    """Create the MAC key of an epoch, and the key that wraps the keys of people."""
    mac = root.wrap(os.urandom(KEY_BYTES), context=mac_key_binding(epoch))
    work.execute("insert into {epoch} (epoch, root, mac) values (%s, %s, %s)", [epoch, root.name, mac])
    wrapped = root.wrap(os.urandom(KEY_BYTES), context=shard_binding(epoch, 0))
    work.execute("insert into {shard} (epoch, shard, wrapped) values (%s, 0, %s)", [epoch, wrapped])


def _missing_epoch_key_error(epoch: int) -> VerificationError:
    return VerificationError(
        f"the registry has keys of epoch {epoch}, but the key of that epoch that wraps them is missing",
        hint="restore the registry",
    )

"""A rotation: a new epoch under another root key. Wraps all active keys again, then destroys the former epoch key."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.encryption.aead import KEY_BYTES, Encryptor
from audit.encryption.key_registry import batches
from audit.encryption.key_registry.bindings import key_binding, lookup_key_binding
from audit.encryption.key_registry.errors import (
    empty_registry_error,
    other_root_error,
    reused_root_error,
    translate_missing_macs,
)
from audit.encryption.key_registry.identifiers import update_macs, verify_links
from audit.encryption.key_registry.key_ring import begin_epoch
from audit.encryption.root_keys import UNUSABLE, RootRefused
from cdf.errors import ConfigError, Fenced

if TYPE_CHECKING:
    from audit.database import Database, Transaction
    from audit.encryption.key_registry.key_ring import KeyRing
    from audit.encryption.root_keys import Root

__all__ = ["Rotation"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """A rotation to the root key ``new``. A rotation that was interrupted continues in the epoch that it began."""

    database: Database
    ring: KeyRing
    new: Root

    def run(self, progress: Callable[[int], None]) -> None:
        """``progress`` receives the number of keys that are wrapped again. Raises Fenced where keys were created in an older
        epoch meanwhile; then nothing is destroyed."""
        with translate_missing_macs(), self.database.transaction() as work:
            work.execute("lock table {epoch} in exclusive mode")
            epoch = self._begin_or_resume(work)
            lookup_key = self.ring.lookup_key(self.database, self.new)  # if it cannot be unwrapped, nothing begins
        while self._move_links(epoch):
            pass
        moved, after = 0, b""
        while (last := self._rewrap_keys(epoch, after)) or after:  # again from the first key, until none is found
            if last is not None:
                moved += last[1]
                progress(moved)
            after = last[0] if last is not None else b""
        with self.database.transaction() as work:
            self._end_former_epochs(work, epoch, lookup_key)
        self.ring.change_root(self.new, epoch)

    def _begin_or_resume(self, work: Transaction) -> int:
        """The epoch under the new root key: one whose rotation was interrupted, else a new one."""
        epochs = work.rows("select epoch, root, ended_at from {epoch} order by epoch desc")
        if not epochs:
            raise empty_registry_error()
        newest, current, _ = epochs[0]
        names, configured, new = {name for _, name, _ in epochs}, self.ring.root, self.new
        unfinished = [name for _, name, ended_at in epochs[1:] if ended_at is None]
        if unfinished and (current, unfinished[0]) != (new.name, configured.name):
            raise ConfigError(
                f"a rotation from the root key {unfinished[0]} to {current} has begun and is not finished",
                hint=f"configure {unfinished[0]} until `deltarelay keys rotate` to {current} has ended",
            )
        if current == new.name != configured.name:
            # The configured key will be destroyed: it must be a former root key, and no alias of the new one
            if configured.name not in {name for _, name, _ in epochs[1:]} or _is_same_key(configured, new):
                raise other_root_error(current, configured.name)
            return int(newest)
        # By name; in KMS also by alias, which may have been moved to the new key meanwhile
        if new.name in names or new.name == configured.name:
            raise reused_root_error()
        if current != configured.name:
            raise other_root_error(current, configured.name)
        if _unwraps_for(new, configured):
            raise reused_root_error()
        begin_epoch(work, newest + 1, new)
        return int(newest) + 1

    def _move_links(self, epoch: int) -> int:
        """Move a batch of links into the epoch. Returns their number."""
        with self.database.transaction() as work:
            rows = work.rows(
                "select lookup, token, epoch, mac from {identifier} where epoch < %s limit %s for update",
                [epoch, batches.BATCH],
            )
            links = sorted(verify_links(work, self.ring, rows).items())
            if links:
                update_macs(work, epoch, self.ring.mac_key(work, epoch, self.new), links)
        return len(links)

    def _rewrap_keys(self, epoch: int, after: bytes) -> tuple[bytes, int] | None:
        """Wrap a batch of keys again, in the order of their ids from ``after`` on. Returns the last id and the number."""
        with self.database.transaction() as work:
            # Use the index on the ids: a sort would read all remaining keys for every batch
            work.execute("set local enable_sort = off; set local enable_bitmapscan = off")
            rows = work.rows(
                "select key_id, token, class, epoch, wrapped, commitment from {key}"
                " where key_id > %b and shredded_at is null and epoch < %s order by key_id limit %s for update",
                [after, epoch, batches.BATCH],
            )
            if not rows:
                return None
            encryptor, wrapped = Encryptor(), []
            for key_id, token, class_name, old_epoch, old, committed in rows:
                place = (key_id, token, class_name)
                key = self.ring.unwrap_person_key(work, place, old_epoch, old, committed)
                epoch_key = self.ring.epoch_key(work, epoch, token, self.new)
                wrapped.append(encryptor.encrypt(epoch_key, key, associated_data=key_binding(*place)))
            work.execute(
                "update {key} k set epoch = %s, wrapped = n.wrapped"
                " from unnest(%b::bytea[], %b::bytea[]) as n (key_id, wrapped) where k.key_id = n.key_id",
                [epoch, [row[0] for row in rows], wrapped],
            )
        return bytes(rows[-1][0]), len(rows)

    def _end_former_epochs(self, work: Transaction, epoch: int, lookup_key: bytes) -> None:
        work.execute("lock table {epoch} in exclusive mode")
        remaining = work.row(
            "select exists (select from {key} where shredded_at is null and epoch < %s)"
            " or exists (select from {identifier} where epoch < %s)",
            [epoch, epoch],
        )
        if remaining != (False,):
            raise Fenced(
                "another process has created keys of an older epoch in the meantime: no key was destroyed",
                hint="run `deltarelay keys rotate` again: it continues",
            )
        work.execute(
            "update {lookup_key} set epoch = %s, wrapped = %s",
            [epoch, self.new.wrap(lookup_key, context=lookup_key_binding(epoch))],
        )
        work.execute("delete from {shard} where epoch < %s", [epoch])
        work.execute(
            "update {epoch} set ended_at = clock_timestamp(), mac = null where epoch < %s and ended_at is null",
            [epoch],
        )


def _unwraps_for(root: Root, other: Root) -> bool:
    """Whether ``root`` unwraps a key that ``other`` has wrapped."""
    probe = os.urandom(KEY_BYTES)
    try:
        return root.unwrap(other.wrap(probe, context="deltarelay probe"), context="deltarelay probe") == probe
    except RootRefused:
        return False


def _is_same_key(former: Root, root: Root) -> bool:
    try:
        return _unwraps_for(root, former)
    except ConfigError as error:
        if error.condition in UNUSABLE:  # an earlier attempt has already scheduled its destruction
            return False
        raise

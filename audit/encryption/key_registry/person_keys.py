"""The keys of people: find, create and destroy them, and read their states."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from audit.encryption.aead import KEY_BYTES, Encryptor, commitment
from audit.encryption.key_registry.batches import split
from audit.encryption.key_registry.bindings import key_binding
from audit.encryption.key_registry.identifiers import verify_links
from audit.encryption.key_registry.key_ring import find_newest_epoch
from audit.encryption.key_registry.results import DestroyedKeys, KeyState, PersonKey
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from audit.database import Transaction
    from audit.encryption.key_registry.key_ring import KeyRing

__all__ = ["count_unlinked_keys", "create_keys", "destroy_keys", "find_keys", "read_states"]

KEY_ID_BYTES = 16
_UNLINKED = """\
from {key} k where k.shredded_at is null and not exists (select from {identifier} i where i.token = k.token)"""


def find_keys(
    work: Transaction, ring: KeyRing, wanted: Sequence[tuple[bytes, str]]
) -> dict[tuple[bytes, str], PersonKey]:
    """The active keys by (token, class)."""
    # Not a join with ``wanted``: while the table has no statistics, PostgreSQL would sort the whole table
    rows = work.rows(
        "select key_id, token, class, epoch, wrapped, commitment from {key}"
        " where token = any(%b::bytea[]) and shredded_at is null and class = any(%s)",
        [[token for token, _ in wanted], sorted({class_name for _, class_name in wanted})],
    )
    asked = set(wanted)
    return {
        (token, class_name): PersonKey(
            key_id,
            token,
            class_name,
            committed,
            ring.unwrap_person_key(work, (key_id, token, class_name), epoch, wrapped, committed),
        )
        for key_id, token, class_name, epoch, wrapped, committed in rows
        if (token, class_name) in asked
    }


def create_keys(
    work: Transaction, ring: KeyRing, missing: Sequence[tuple[bytes, str]]
) -> dict[tuple[bytes, str], PersonKey]:
    """Create keys by (token, class). A person who was erased gets a key that is stored as destroyed."""
    # Until this transaction ends, no epoch begins or ends: the key of a former epoch is destroyed
    work.execute("lock table {epoch} in row share mode")
    epoch, _ = find_newest_epoch(work)
    links = work.rows(
        "select lookup, token, epoch, mac from {identifier} where token = any(%b::bytea[])",
        [sorted({token for token, _ in missing})],
    )
    linked = set(verify_links(work, ring, links).values())
    # A token without a link belongs to a person who was erased after the caller read it: no erasure would reach a new key
    erased = dict(
        work.rows(
            "select t.token, (select max(k.shredded_by) from {key} k where k.token = t.token and k.wrapped is null)"
            " from unnest(%b::bytea[]) t (token)",
            [sorted({token for token, _ in missing} - linked)],
        )
    )
    encryptor, rows, destroyed = Encryptor(), [], {}
    for token, class_name in missing:
        key_id, key = os.urandom(KEY_ID_BYTES), os.urandom(KEY_BYTES)
        wrapped = None
        if token in erased:
            destroyed[token, class_name] = PersonKey(key_id, token, class_name, commitment(key), key)
        else:
            epoch_key = ring.epoch_key(work, epoch, token)
            wrapped = encryptor.encrypt(epoch_key, key, associated_data=key_binding(key_id, token, class_name))
        rows.append((key_id, token, class_name, wrapped, commitment(key), erased.get(token)))
    work.execute(
        "insert into {key} (key_id, token, class, epoch, wrapped, commitment, shredded_at, shredded_by)"
        " select n.key_id, n.token, n.class, %s, n.wrapped, n.commitment,"
        " case when n.wrapped is null then clock_timestamp() end, n.shredded_by"
        " from unnest(%b::bytea[], %b::bytea[], %s::text[], %b::bytea[], %b::bytea[], %s::text[])"
        " as n (key_id, token, class, wrapped, commitment, shredded_by)"
        " on conflict (token, class) where shredded_at is null do nothing",
        [epoch, *map(list, zip(*rows, strict=True))],
    )
    return find_keys(work, ring, missing) | destroyed


def read_states(work: Transaction, ring: KeyRing, key_ids: Collection[bytes]) -> dict[bytes, KeyState]:
    """The states of these keys. Unknown ids are left out."""
    states = {}
    for batch in split(key_ids):
        rows = work.rows(
            "select key_id, token, class, epoch, wrapped, commitment, shredded_at, shredded_by from {key}"
            " where key_id = any(%b::bytea[])",
            [batch],
        )
        for key_id, token, class_name, epoch, wrapped, committed, at, by in rows:
            place = (key_id, token, class_name)
            key = None if wrapped is None else ring.unwrap_person_key(work, place, epoch, wrapped, committed)
            states[key_id] = KeyState(key_id, class_name, key, at, by)
    return states


def destroy_keys(
    work: Transaction, ring: KeyRing, tokens: Collection[bytes], *, run: str, keeping: Collection[str]
) -> DestroyedKeys:
    """Destroy the keys of these tokens, except those of the classes ``keeping``, in a transaction that excludes all others.

    Raises VerificationError where a key still exists afterwards, or an active key has no link."""
    keys = subjects = 0
    for batch in split(tokens):
        keys += work.count(
            "update {key} set wrapped = null, shredded_at = clock_timestamp(), shredded_by = %s"
            " where token = any(%b::bytea[]) and shredded_at is null and class <> all(%s::text[])",
            [run, batch, sorted(keeping)],
        )
        active = work.rows(
            "select token, key_id, class from {key} where token = any(%b::bytea[]) and shredded_at is null", [batch]
        )
        if remaining := [bytes(row[1]).hex() for row in active if row[2] not in keeping]:
            raise VerificationError(
                f"the key {remaining[0]} is still in the registry after the statement that destroys it: the database did "
                "not execute this statement as written. No key was destroyed",
                hint="look for triggers and rules on the table key, and remove them",
                keys=remaining[:20],
            )
        links = work.rows(
            "delete from {identifier} where token = any(%b::bytea[]) returning lookup, token, epoch, mac",
            [sorted(set(batch) - {bytes(row[0]) for row in active})],
        )
        # Verified: an altered link belongs to another person, who would lose it
        subjects += len(set(verify_links(work, ring, links).values()))
    _use_hash_joins(work)
    if unlinked := work.rows(f"select k.key_id {_UNLINKED} order by k.key_id limit 20"):
        raise VerificationError(
            f"no identifier leads to the owner of the active key {bytes(unlinked[0][0]).hex()}, and possibly to the owners "
            "of other keys: links were removed, or keys were moved by hand. No key was destroyed",
            hint="restore a backup of the key registry that `deltarelay keys restore-check` approves",
            keys=[bytes(row[0]).hex() for row in unlinked],
        )
    if keys:
        work.execute("update {shreds} set count = count + 1")
    return DestroyedKeys(keys, subjects)


def count_unlinked_keys(work: Transaction) -> int:
    """The number of active keys without an owner. The rest of the transaction uses only hash joins."""
    _use_hash_joins(work)
    [(count,)] = work.rows(f"select count(*) {_UNLINKED}")
    return int(count)


def _use_hash_joins(work: Transaction) -> None:
    # Without statistics PostgreSQL expects few active keys and looks up the link of each: 9 s for a million keys, not 1
    work.execute("set local enable_nestloop = off; set local enable_mergejoin = off")

"""Links from identifiers to the tokens of people. Each link has a MAC that is verified at every use.

With two tokens swapped, erasing one person would destroy the keys of another.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from audit.encryption.key_registry.batches import split
from audit.encryption.key_registry.bindings import link_mac, lookup_hash
from audit.encryption.key_registry.key_ring import find_newest_epoch
from cdf.errors import VerificationError

if TYPE_CHECKING:
    from audit.database import Transaction
    from audit.encryption.key_registry.key_ring import KeyRing
    from audit.encryption.key_registry.results import Person

__all__ = ["TOKEN_BYTES", "create_tokens", "find_tokens", "hash_identifiers", "update_macs", "verify_links"]

TOKEN_BYTES = 16


def hash_identifiers(lookup_key: bytes, subject: str, people: Sequence[Person]) -> list[list[bytes]]:
    return [[lookup_hash(lookup_key, subject, name, value) for name, value in person] for person in people]


def find_tokens(work: Transaction, ring: KeyRing, lookups: Sequence[Sequence[bytes]]) -> list[bytes | None]:
    """For each person the token of the first identifier that has one; None where none has."""
    known = _read_links(work, ring, lookups)
    return [next((known[lookup] for lookup in own if lookup in known), None) for own in lookups]


def create_tokens(work: Transaction, ring: KeyRing, lookups: Sequence[Sequence[bytes]]) -> list[bytes | None]:
    """For each person the token of the first identifier, which is created where it is new. Adds the other identifiers."""
    known = _read_links(work, ring, lookups)
    new: dict[bytes, bytes] = {}
    for own in filter(None, lookups):
        token = known.get(own[0]) or new.setdefault(own[0], os.urandom(TOKEN_BYTES))
        for lookup in own:
            if lookup not in known:
                new.setdefault(lookup, token)
    if new:
        work.execute("lock table {epoch} in row share mode")  # as where keys are created
        epoch, root = find_newest_epoch(work)
        mac_key = ring.mac_key(work, epoch, ring.select_root(root))
        for links in split(sorted(new.items())):  # sorted: concurrent transactions take locks in the same order
            macs = [link_mac(mac_key, *link, epoch) for link in links]
            work.execute(
                "insert into {identifier} (lookup, token, epoch, mac)"
                " select n.lookup, n.token, %s, n.mac from unnest(%b::bytea[], %b::bytea[], %b::bytea[])"
                " as n (lookup, token, mac) on conflict do nothing",
                [epoch, [lookup for lookup, _ in links], [token for _, token in links], macs],
            )
        known = _read_links(work, ring, lookups)  # a concurrent transaction may have inserted links first
    return [known[own[0]] if own else None for own in lookups]


def _read_links(work: Transaction, ring: KeyRing, lookups: Sequence[Sequence[bytes]]) -> dict[bytes, bytes]:
    known: dict[bytes, bytes] = {}
    for batch in split({lookup for own in lookups for lookup in own}):
        rows = work.rows("select lookup, token, epoch, mac from {identifier} where lookup = any(%b::bytea[])", [batch])
        known |= verify_links(work, ring, rows)
    return known


def verify_links(
    work: Transaction, ring: KeyRing, links: Iterable[tuple[bytes, bytes, int, bytes]]
) -> dict[bytes, bytes]:
    """Tokens by lookup, from rows of ``identifier``. Raises VerificationError where the MAC of a row does not match."""
    known: dict[bytes, bytes] = {}
    altered: list[str] = []
    for lookup, token, epoch, mac in links:
        key = ring.mac_key(work, epoch)
        if hmac.compare_digest(mac, link_mac(key, lookup, token, epoch)):
            known[bytes(lookup)] = bytes(token)
        else:
            altered.append(bytes(lookup).hex())
    if altered:
        raise VerificationError(
            f"{len(altered)} links from an identifier to a person's keys were altered, such as that of the lookup "
            f"{altered[0]} in the table identifier: it would lead to another person's keys",
            hint="the key registry was altered: restore a backup that `deltarelay keys restore-check` approves",
            lookups=altered[:20],
        )
    return known


def update_macs(work: Transaction, epoch: int, mac_key: bytes, links: Sequence[tuple[bytes, bytes]]) -> None:
    """Move links (lookup, token) into an epoch, with a MAC of that epoch."""
    macs = [link_mac(mac_key, lookup, token, epoch) for lookup, token in links]
    work.execute(
        "update {identifier} i set epoch = %s, mac = n.mac"
        " from unnest(%b::bytea[], %b::bytea[]) as n (lookup, mac) where i.lookup = n.lookup",
        [epoch, [lookup for lookup, _ in links], macs],
    )

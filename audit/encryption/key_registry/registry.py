"""``Registry``: the front of the key registry; see ``audit.encryption.key_registry``."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from audit.database import Database
from audit.encryption.aead import KEY_BYTES
from audit.encryption.key_registry import person_keys, readings
from audit.encryption.key_registry.batches import split
from audit.encryption.key_registry.bindings import lookup_key_binding
from audit.encryption.key_registry.errors import RegistryIncomplete
from audit.encryption.key_registry.identifiers import create_tokens, find_tokens, hash_identifiers
from audit.encryption.key_registry.key_ring import KeyRing, begin_epoch
from audit.encryption.key_registry.results import (
    DestroyedKeys,
    Epoch,
    KeyState,
    Person,
    PersonKey,
    Reading,
    RegistryStatus,
    States,
)
from audit.encryption.key_registry.rotation import Rotation
from audit.encryption.key_registry.tables import DEFINITIONS, MIGRATIONS
from audit.encryption.key_registry.upgrade import add_macs
from audit.migrations import Migrations
from cdf.errors import ConfigError

if TYPE_CHECKING:
    from audit.database import Transaction
    from audit.encryption.root_keys import Root

__all__ = ["Registry", "registry_database"]


def registry_database(dsn: str, schema: str) -> Database:
    migrations = Migrations("the key registry", schema, MIGRATIONS, recreates=False)
    return Database(dsn, migrations, made_by="deltarelay keys init")


class Registry:
    """``root``: the root key of the newest epoch. Any method raises SinkUnavailable where the database or the root key
    cannot be reached now, and ConfigError where a right or a setting is missing."""

    def __init__(self, dsn: str, root: Root, *, schema: str) -> None:
        self._ring = KeyRing(root)
        self._database = registry_database(dsn, schema)

    def prepare(self) -> None:
        """Create the tables and the first epoch where the registry does not exist yet. May be called again.

        Raises RegistryIncomplete where a table of an existing registry is missing: an empty table in its place would hide
        that its keys are lost.
        """
        self._check_complete()
        self._database.prepare()
        with self._database.transaction() as work:
            work.execute("lock table {epoch} in exclusive mode")
            if work.row("select from {epoch}") is None:
                begin_epoch(work, 1, self._ring.root)
                work.execute(
                    "insert into {lookup_key} (epoch, wrapped) values (1, %s)",
                    [self._ring.root.wrap(os.urandom(KEY_BYTES), context=lookup_key_binding(1))],
                )
        self._ring.lookup_key(self._database)  # raises for a registry whose links have no MACs

    def find_pending(self) -> tuple[str, ...] | None:
        """The statements that ``prepare`` would run; None where there is no registry. Raises RegistryIncomplete."""
        self._check_complete()
        return self._database.find_pending()

    def _check_complete(self) -> None:
        missing, version = self._database.find_missing()
        if missing and (version > 0 or len(missing) < len(DEFINITIONS)):
            raise RegistryIncomplete(
                f"{self._database.name} has no table {', '.join(missing)}",
                hint="restore the registry from its backup; `deltarelay keys restore-check` checks the backup",
            )

    def upgrade(self) -> int:
        """Give every link of a registry of an earlier release a MAC, once; returns the number of links. The links are taken
        as they are: altered links stay altered."""
        with self._database.transaction() as work:
            return add_macs(work, self._ring)

    # ── people and their keys ────────────────────────────────────────────────────────────────────────────────────────

    def find_tokens(self, subject: str, people: Sequence[Person]) -> list[bytes | None]:
        """For each person the token that any of the identifiers leads to; None for a person who has none."""
        # The lookup key may come from KMS: before the transaction, which must not wait for it
        lookups = hash_identifiers(self._ring.lookup_key(self._database), subject, people)
        with self._database.transaction() as work:
            _block_destruction(work)
            return find_tokens(work, self._ring, lookups)

    def find_or_create_tokens(self, subject: str, people: Sequence[Person]) -> list[bytes | None]:
        """For each person the token of the first identifier, created where it is new; None for one without identifiers.

        The other identifiers are added where they are new. An identifier stays with its person: two people who share an
        e-mail address stay two."""
        lookups = hash_identifiers(self._ring.lookup_key(self._database), subject, people)
        with self._database.transaction() as work:
            _block_destruction(work)
            return create_tokens(work, self._ring, lookups)

    def find_keys(self, wanted: Iterable[tuple[bytes, str]]) -> dict[tuple[bytes, str], PersonKey]:
        """The active keys by (token, class). Raises VerificationError where a key was altered in the database."""
        found: dict[tuple[bytes, str], PersonKey] = {}
        with self._database.transaction() as work:
            _block_destruction(work)
            for batch in split(sorted(set(wanted))):
                found |= person_keys.find_keys(work, self._ring, batch)
        return found

    def find_or_create_keys(self, wanted: Iterable[tuple[bytes, str]]) -> dict[tuple[bytes, str], PersonKey]:
        """The active keys by (token, class), created where they are missing; concurrent callers get the same key.

        A person who was erased after the caller read the token gets a key that is stored as destroyed: what it encrypts
        cannot be decrypted by anyone. Raises VerificationError where a key was altered in the database.
        """
        found: dict[tuple[bytes, str], PersonKey] = {}
        with self._database.transaction() as work:
            _block_destruction(work)
            for batch in split(sorted(set(wanted))):
                known = person_keys.find_keys(work, self._ring, batch)
                if missing := [place for place in batch if place not in known]:
                    known |= person_keys.create_keys(work, self._ring, missing)
                found |= known
        return found

    def read_states(self, key_ids: Iterable[bytes]) -> dict[bytes, KeyState]:
        """The states of these keys. Ids that the registry has never had are left out."""
        with self._database.transaction() as work:
            return person_keys.read_states(work, self._ring, sorted(set(key_ids)))

    def destroy_keys(self, tokens: Iterable[bytes], *, run: str, keeping: Collection[str] = ()) -> DestroyedKeys:
        """Destroy all keys of these tokens, except those of the classes ``keeping``. May be called again.

        Raises VerificationError, and destroys nothing, where an active key belongs to a token without identifiers: it may
        belong to one of these people, and would survive.
        """
        with self._database.transaction() as work:
            _exclude_other_sessions(work)
            return person_keys.destroy_keys(work, self._ring, sorted(set(tokens)), run=run, keeping=keeping)

    def list_destroyed_keys(self, tokens: Iterable[bytes]) -> list[bytes]:
        """Ids of the destroyed keys of these tokens."""
        statement = (
            "select key_id from {key} where token = any(%b::bytea[]) and shredded_at is not null order by key_id"
        )
        return [bytes(key_id) for key_id in self._select(statement, tokens)]

    def list_key_ids(self, tokens: Iterable[bytes]) -> frozenset[bytes]:
        """Ids of all keys of these tokens, active and destroyed."""
        statement = "select key_id from {key} where token = any(%b::bytea[])"
        return frozenset(bytes(key_id) for key_id in self._select(statement, tokens))

    def list_active_classes(self, tokens: Iterable[bytes]) -> frozenset[str]:
        """The classes in which any of these tokens has an active key."""
        statement = "select distinct class from {key} where token = any(%b::bytea[]) and shredded_at is null"
        return frozenset(str(name) for name in self._select(statement, tokens))

    def _select(self, statement: str, tokens: Iterable[bytes]) -> list[Any]:
        with self._database.transaction() as work:
            return [row[0] for batch in split(sorted(set(tokens))) for row in work.rows(statement, [batch])]

    # ── readings ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_reading(self, *, trail: str, reader: str, purpose: str, question: str) -> States:
        """A variant of ``read_states`` for readers of encrypted values: the registry records each call.

        Raises ConfigError where the purpose is empty or too long for a record."""
        return readings.open_reading(
            self._database, self._ring, trail=trail, reader=reader, purpose=purpose, question=question
        )

    def list_new_readings(self, trail: str) -> list[Reading]:
        """Readings that the trail has not recorded yet, the oldest first."""
        with self._database.transaction() as work:
            return readings.list_new_readings(work, trail)

    def mark_readings_recorded(self, ids: Iterable[int]) -> None:
        with self._database.transaction() as work:
            readings.mark_readings_recorded(work, ids)

    # ── epochs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def rotate(self, root: Root, *, progress: Callable[[int], None] = lambda _: None) -> Epoch:
        """Begin an epoch under another root key, or continue one that was interrupted: wrap every active key again, then
        destroy the former epoch key. ``progress`` receives the number of keys that are done."""
        Rotation(self._database, self._ring, root).run(progress)
        return self.read_status().epochs[0]

    def record_root_destruction(self, root: str, day: dt.date) -> None:
        """Record the day on which a former root key is destroyed: older backups are unreadable from then on."""
        with self._database.transaction() as work:
            if not work.count(
                "update {epoch} set root_gone_on = %s where root = %s and ended_at is not null", [day, root]
            ):
                raise ConfigError(
                    f"no finished epoch used the root key {root}", hint="`deltarelay keys status` lists them"
                )

    def list_roots(self) -> dict[str, dt.date | None]:
        """The root keys of all epochs, the newest first, each with the day of its destruction where that is known."""
        with self._database.transaction() as work:
            return dict(work.rows("select root, root_gone_on from {epoch} order by epoch desc"))

    def read_status(self) -> RegistryStatus:
        with self._database.transaction() as work:
            epochs = work.rows(
                "select epoch, root, began_at, ended_at, root_gone_on,"
                " (select count(*) from {key} k where k.epoch = e.epoch and k.shredded_at is null)"
                " from {epoch} e order by epoch desc"
            )
            [(subjects, living, shredded)] = work.rows(
                "select (select count(distinct token) from {identifier}),"
                " (select count(*) from {key} where shredded_at is null),"
                " (select count(*) from {key} where shredded_at is not null)"
            )
            unlinked = person_keys.count_unlinked_keys(work)
        return RegistryStatus(tuple(Epoch(*row) for row in epochs), subjects, living, shredded, unlinked)


def _block_destruction(work: Transaction) -> None:
    """Until the transaction ends, no session destroys keys: a key must not be returned while it is being destroyed."""
    work.execute("lock table {shreds} in row share mode")


def _exclude_other_sessions(work: Transaction) -> None:
    work.execute("lock table {shreds} in exclusive mode")

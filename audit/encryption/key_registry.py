"""The keys of persons, in a PostgreSQL database of their own: one for each subject and class of columns.

    root key ─▶ shard keys (256, for an epoch) ─▶ keys of persons       each wrapped by the one before
    file, KMS   table ``shard``                   table ``key``

A subject has a random token. Which identifiers are its own is known by keyed hashes. The row that links the two has a MAC,
which is verified at every use: with two tokens swapped, erasing one person would destroy the keys of another. The row is
destroyed with the last of its keys: from here nobody is led back to the token then, and whoever signs up again is somebody
new. (A backup from before has the row still: it leads whoever can also open today's lookup key to the token, and to no key.)

Losing this database is erasing everybody, and a backup of it from before an erasure brings that person's key back. So living
keys are wrapped anew in every **epoch**, under shard keys under another root key. The old ones are destroyed, and from the
day on which the old root key is, so is every backup from before.
"""

from __future__ import annotations

import datetime as dt
import hmac
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from audit.database import Database
from audit.encryption.aead import KEY_BYTES, NotOpened, Opener, Sealer, commitment
from audit.encryption.key_registry_schema import DEFINITIONS, UPGRADE, UPGRADED
from audit.encryption.root_keys import UNUSABLE, RootRefused
from cdf.errors import ConfigError, Fenced, VerificationError
from cdf.result import Result

if TYPE_CHECKING:
    from audit.database import Transaction
    from audit.encryption.root_keys import Root

__all__ = [
    "Epoch",
    "KeyState",
    "Person",
    "PersonKey",
    "Reading",
    "Registry",
    "RegistryIncomplete",
    "RegistryStatus",
    "Shredded",
    "States",
    "about_key",
    "about_lookup",
    "about_mac",
    "about_shard",
    "another_root",
    "empty_registry",
    "mac_of",
    "not_upgraded",
    "registry_database",
    "shard_of",
    "without_macs",
]

SHARDS = 256
TOKEN_BYTES = KEY_ID_BYTES = 16
MOST_PURPOSE = 200
BATCH = 5_000
"""So many keys in one statement."""

_UNLINKED = """\
from {key} k where k.shredded_at is null and not exists (select from {identifier} i where i.token = k.token)"""
_LINK = b"deltarelay registry link v1"
_NO_COLUMN = "42703"

T = TypeVar("T")
States: TypeAlias = "Callable[[Iterable[bytes]], Mapping[bytes, KeyState]]"
"""What became of keys, by their ids."""

Person: TypeAlias = Sequence[tuple[str, str]]
"""(identifier, value as ``audit.identifiers.normalise`` gives it); the first is the one by which a row is somebody's."""


@dataclass(frozen=True, slots=True)
class PersonKey:
    key_id: bytes
    token: bytes
    class_name: str
    commitment: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyState:
    """What the registry knows of a key: living with ``key``, or shredded."""

    key_id: bytes
    class_name: str
    key: bytes | None = field(repr=False)
    shredded_at: dt.datetime | None = None
    shredded_by: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Keys that were handed out, to whom and what for."""

    id: int
    at: dt.datetime
    role: str
    """Of the database."""
    reader: str
    purpose: str
    question: str
    keys: int


@dataclass(frozen=True, slots=True)
class Shredded(Result):
    keys: int
    """Of which nothing is left."""
    subjects: int
    """That have no key any more: nobody can be led back to them."""


@dataclass(frozen=True, slots=True)
class Epoch(Result):
    epoch: int
    root: str
    began_at: dt.datetime
    ended_at: dt.datetime | None
    root_gone_on: dt.date | None
    keys: int
    """That live, and are wrapped in it."""


@dataclass(frozen=True, slots=True)
class RegistryStatus(Result):
    epochs: tuple[Epoch, ...]
    """The newest first."""
    subjects: int
    living: int
    shredded: int
    unlinked: int
    """Living keys of tokens that no identifier leads to: links that somebody has removed. No erasure would destroy them."""


def registry_database(dsn: str, schema: str) -> Database:
    return Database(dsn, schema, what="the key registry", definitions=DEFINITIONS, made_by="deltarelay keys init")


class RegistryIncomplete(ConfigError):
    """Tables of the key registry are missing."""

    code = "key_registry_incomplete"


class Registry:
    """``root``: the key that the newest epoch is under. Any method raises SinkUnavailable where the database or the root
    key cannot be reached for now, and ConfigError where a right or a setting is missing."""

    def __init__(self, dsn: str, root: Root, *, schema: str) -> None:
        self._root = root
        self._database = registry_database(dsn, schema)
        self._shards: dict[tuple[int, int], bytes] = {}
        self._macs: dict[int, bytes] = {}
        self._lookup: bytes | None = None
        self._opener = Opener()  # a shard key leads to few ciphers

    def prepare(self) -> None:
        """Create the registry where there is none: the tables, and the first epoch. Again it changes nothing.

        Raises RegistryIncomplete where a registry is there and has lost a table: created again it would be empty, and the
        keys in it would seem never to have existed.
        """
        missing = self._database.missing()
        if missing and len(missing) < len(DEFINITIONS):
            raise RegistryIncomplete(
                f"{self._database.name} has no table {', '.join(missing)}",
                hint="restore the registry from its backup; `deltarelay keys restore-check` checks the backup",
            )
        self._database.prepare()
        with self._database.transaction() as work:
            work.execute("lock table {epoch} in exclusive mode")
            if work.row("select from {epoch}") is None:
                self._begin(work, 1, self._root)
                work.execute(
                    "insert into {lookup_key} (epoch, wrapped) values (1, %s)",
                    [self._root.wrap(os.urandom(KEY_BYTES), about=about_lookup(1))],
                )
        self._lookup_key()  # refuses a registry that was made before links had a MAC

    def upgrade(self) -> int:
        """Give every link of a registry from before a MAC, once; → how many. It takes the links as they are: what somebody
        has swapped before this moment stays swapped."""
        with self._database.transaction() as work:
            work.execute("lock table {epoch} in exclusive mode")
            epochs = work.rows("select epoch, root from {epoch} where ended_at is null order by epoch desc")
            if not epochs:
                raise empty_registry()
            if len(epochs) > 1:
                raise ConfigError(
                    "a rotation of the key registry was begun and is not over",
                    hint="run `deltarelay keys rotate` of the release that began it to its end, then upgrade",
                )
            epoch, root = int(epochs[0][0]), str(epochs[0][1])
            work.execute(UPGRADE)
            row = work.row("select mac from {epoch} where epoch = %s", [epoch])
            key, has_macs = self._by_name(root, self._root), row is not None and row[0] is not None
            self._upgrade_lookup_key(work, key, has_macs=has_macs)
            if has_macs:
                return 0
            mac_key = os.urandom(KEY_BYTES)
            work.execute(
                "update {epoch} set mac = %s where epoch = %s", [key.wrap(mac_key, about=about_mac(epoch)), epoch]
            )
            count = 0
            work.execute("set local statement_timeout = 0")
            links = _pairs(work.rows("select lookup, token from {identifier}"))
            for some in _batches(list(links)):
                self._put_macs(work, epoch, mac_key, some)
                count += len(some)
            work.execute(UPGRADED)
        return count

    def _upgrade_lookup_key(self, work: Transaction, root: Root, *, has_macs: bool) -> None:
        """Wrap it as registries with MACs have it. Raises VerificationError where it is so already and the MACs are gone:
        somebody may have taken them away to have altered links authenticated."""
        row = work.row("select epoch, wrapped from {lookup_key}")
        if row is None:
            raise empty_registry()
        epoch, wrapped = row
        try:
            lookup_key = root.unwrap(wrapped, about=f"deltarelay lookup key {epoch}")
        except RootRefused:
            root.unwrap(wrapped, about=about_lookup(epoch))
            if has_macs:
                return
            raise VerificationError(
                "the key registry had MACs, and they are gone: somebody has altered it",
                hint="restore a backup that `deltarelay keys restore-check` approves",
            ) from None
        work.execute("update {lookup_key} set wrapped = %s", [root.wrap(lookup_key, about=about_lookup(epoch))])

    # ── persons and their keys ───────────────────────────────────────────────────────────────────────────────────────

    def tokens(self, subject: str, people: Sequence[Person], *, create: bool = False) -> list[bytes | None]:
        """For each person the token that any of the identifiers leads to; None for whom there is none.

        ``create``: the first identifier decides, and where it is new there is a new token; the others are kept where they
        are new. An identifier stays whose it is: two people who share an e-mail are not made one."""
        lookup_key = self._lookup_key()  # what takes long is done before the transaction, which waits for nothing
        lookups = [[_lookup_of(lookup_key, subject, name, value) for name, value in one] for one in people]
        with self._database.transaction() as work:
            _beside_others(work)
            known = self._known(work, lookups)
            if not create:
                return [next((known[one] for one in own if one in known), None) for own in lookups]
            new: dict[bytes, bytes] = {}
            for own in filter(None, lookups):
                token = known.get(own[0]) or new.setdefault(own[0], os.urandom(TOKEN_BYTES))
                for one in own:
                    if one not in known:
                        new.setdefault(one, token)
            if not new:
                return [known[own[0]] if own else None for own in lookups]
            work.execute("lock table {epoch} in row share mode")  # as where keys are made
            epoch, root = self._newest(work)
            mac_key = self._mac_key(work, epoch, self._by_name(root, self._root))
            for some in _batches(sorted(new.items())):  # in one order, or two could wait for each other
                work.execute(
                    "insert into {identifier} (lookup, token, epoch, mac)"
                    " select n.lookup, n.token, %s, n.mac from unnest(%b::bytea[], %b::bytea[], %b::bytea[])"
                    " as n (lookup, token, mac) on conflict do nothing",
                    [epoch, *map(list, zip(*((*link, mac_of(mac_key, *link, epoch)) for link in some), strict=True))],
                )
            known = self._known(work, lookups)  # somebody else may have been quicker
            return [known[own[0]] if own else None for own in lookups]

    def keys(self, wanted: Iterable[tuple[bytes, str]], *, create: bool = False) -> dict[tuple[bytes, str], PersonKey]:
        """By (token, class) the living key, made where there is none and ``create`` says so: two who ask get the same one.

        Of somebody who was erased since the token was had, a key is made that is destroyed from the start: what it seals is
        read by nobody. Raises VerificationError where a key is not the one that was made, which only a hand in the database
        can bring about.
        """
        found: dict[tuple[bytes, str], PersonKey] = {}
        with self._database.transaction() as work:
            _beside_others(work)
            for some in _batches(sorted(set(wanted))):
                there = self._living(work, some)
                if create and (missing := [one for one in some if one not in there]):
                    there |= self._create(work, missing)
                found |= there
        return found

    def states(self, key_ids: Iterable[bytes]) -> dict[bytes, KeyState]:
        """What became of these keys; one that the registry has never had is not among them."""
        with self._database.transaction() as work:
            return self._states(work, sorted(set(key_ids)))

    def _states(self, work: Transaction, key_ids: Sequence[bytes]) -> dict[bytes, KeyState]:
        found = {}
        for some in _batches(key_ids):
            rows = work.rows(
                "select key_id, token, class, epoch, wrapped, commitment, shredded_at, shredded_by from {key}"
                " where key_id = any(%b::bytea[])",
                [list(some)],
            )
            for key_id, token, class_name, epoch, wrapped, committed, at, by in rows:
                place = (key_id, token, class_name)
                key = None if wrapped is None else self._opened(work, place, epoch, wrapped, committed)
                found[key_id] = KeyState(key_id, class_name, key, at, by)
        return found

    # ── readings ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read_for(self, *, trail: str, reader: str, purpose: str, question: str) -> States:
        """``states`` for somebody who reads what is sealed: no key is handed out without a record of it.

        Raises ConfigError for a purpose that is none, or longer than a record can keep."""
        if not purpose.strip() or len(purpose) > MOST_PURPOSE:
            raise ConfigError(
                f"the purpose of a reading is a text of up to {MOST_PURPOSE} characters", hint="--purpose TEXT"
            )

        def states(key_ids: Iterable[bytes]) -> dict[bytes, KeyState]:
            asked = sorted(set(key_ids))
            with self._database.transaction() as work:
                found = self._states(work, asked)
                handed_out = sum(one.key is not None for one in found.values())
                work.execute(
                    "insert into {reading} (reader, purpose, question, trail, keys) values (%s, %s, %s, %s, %s)",
                    [reader, purpose, question, trail, handed_out],
                )
                return found

        return states

    def readings(self, trail: str) -> list[Reading]:
        """Those of a trail that it does not have yet, the first one first."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select id, at, role, reader, purpose, question, keys from {reading}"
                " where trail = %s and noted_at is null order by id",
                [trail],
            )
        return [Reading(*row) for row in rows]

    def noted(self, ids: Iterable[int]) -> None:
        with self._database.transaction() as work:
            work.execute(
                "update {reading} set noted_at = clock_timestamp() where id = any(%s) and noted_at is null", [list(ids)]
            )

    # ── what became of keys ──────────────────────────────────────────────────────────────────────────────────────────

    def gone(self, tokens: Iterable[bytes]) -> list[bytes]:
        """The ids of the keys that these had and that are shredded."""
        with self._database.transaction() as work:
            return [
                bytes(row[0])
                for some in _batches(sorted(set(tokens)))
                for row in work.rows(
                    "select key_id from {key} where token = any(%s) and shredded_at is not null order by key_id",
                    [list(some)],
                )
            ]

    def registered(self, tokens: Iterable[bytes]) -> frozenset[bytes]:
        """The ids of all keys that these have or had."""
        with self._database.transaction() as work:
            return frozenset(
                bytes(row[0])
                for some in _batches(sorted(set(tokens)))
                for row in work.rows("select key_id from {key} where token = any(%b::bytea[])", [list(some)])
            )

    def classes(self, tokens: Iterable[bytes]) -> frozenset[str]:
        """Those in which any of them has a key that lives."""
        with self._database.transaction() as work:
            return frozenset(
                str(row[0])
                for some in _batches(sorted(set(tokens)))
                for row in work.rows(
                    "select distinct class from {key} where token = any(%b::bytea[]) and shredded_at is null",
                    [list(some)],
                )
            )

    def shred(self, tokens: Iterable[bytes], *, run: str, keeping: Collection[str] = ()) -> Shredded:
        """Destroy their keys, but for those of the classes to be kept. Again for the same it does nothing.

        Raises VerificationError, and destroys nothing, where a living key belongs to a token that no identifier leads to:
        such a key may be of the same people, and would stay.
        """
        keys = subjects = 0
        with self._database.transaction() as work:
            _alone(work)
            for some in _batches(sorted(set(tokens))):
                keys += work.count(
                    "update {key} set wrapped = null, shredded_at = clock_timestamp(), shredded_by = %s"
                    " where token = any(%b::bytea[]) and shredded_at is null and class <> all(%s::text[])",
                    [run, list(some), sorted(keeping)],
                )
                living = work.rows(
                    "select token, key_id, class from {key} where token = any(%b::bytea[]) and shredded_at is null",
                    [list(some)],
                )
                if stays := [bytes(row[1]).hex() for row in living if row[2] not in keeping]:
                    raise VerificationError(
                        f"the key {stays[0]} in the registry is still there after it was destroyed: the database did "
                        "something else. No key was destroyed",
                        hint="look for triggers and rules on the table key, and remove them",
                        keys=stays[:20],
                    )
                gone = work.rows(
                    "delete from {identifier} where token = any(%b::bytea[]) returning lookup, token, epoch, mac",
                    [sorted(set(some) - {bytes(row[0]) for row in living})],
                )
                # One that was led here by a hand is another person's, and would be lost
                subjects += len(set(self._verified(work, gone).values()))
            if left := work.rows(f"select k.key_id {_UNLINKED} order by k.key_id limit 20"):
                raise VerificationError(
                    f"no identifier leads to the owner of the living key {bytes(left[0][0]).hex()}, and maybe of others: "
                    "links were removed or keys moved by hand. No key was destroyed",
                    hint="restore a backup of the key registry that `deltarelay keys restore-check` approves",
                    keys=[bytes(row[0]).hex() for row in left],
                )
            if keys:
                work.execute("update {shreds} set count = count + 1")
        return Shredded(keys, subjects)

    # ── epochs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def rotate(self, root: Root, *, progress: Callable[[int], None] = lambda _: None) -> Epoch:
        """Begin an epoch under another root key, or take up one that was cut off: wrap every living key anew, then destroy
        the shard keys from before. ``progress`` is told how many keys are done."""
        with without_macs(), self._database.transaction() as work:
            work.execute("lock table {epoch} in exclusive mode")
            epoch = self._begun(work, root)
            lookup_key = self._lookup_key(root)  # where it cannot be opened, nothing is begun
        while self._move_links(epoch, root):
            pass
        moved, after = 0, b""
        while (last := self._move(epoch, root, after)) or after:  # again from the first, until none is found
            if last is not None:
                moved += last[1]
                progress(moved)
            after = last[0] if last is not None else b""
        with self._database.transaction() as work:
            work.execute("lock table {epoch} in exclusive mode")
            left = work.row(
                "select exists (select from {key} where shredded_at is null and epoch < %s)"
                " or exists (select from {identifier} where epoch < %s)",
                [epoch, epoch],
            )
            if left != (False,):
                raise Fenced(
                    "somebody has made keys of an older epoch meanwhile: nothing is destroyed",
                    hint="run `deltarelay keys rotate` again: it goes on where it stands",
                )
            work.execute(
                "update {lookup_key} set epoch = %s, wrapped = %s",
                [epoch, root.wrap(lookup_key, about=about_lookup(epoch))],
            )
            work.execute("delete from {shard} where epoch < %s", [epoch])
            work.execute(
                "update {epoch} set ended_at = clock_timestamp(), mac = null where epoch < %s and ended_at is null",
                [epoch],
            )
        self._root, self._shards = root, {place: key for place, key in self._shards.items() if place[0] == epoch}
        self._macs = {number: key for number, key in self._macs.items() if number == epoch}
        self._opener = Opener()
        return self.status().epochs[0]

    def _begun(self, work: Transaction, root: Root) -> int:
        """The epoch under this root key: one that was cut off, else a new one."""
        epochs = work.rows("select epoch, root, ended_at from {epoch} order by epoch desc")
        if not epochs:
            raise empty_registry()
        newest, is_under, _ = epochs[0]
        former = [name for _, name, ended_at in epochs[1:] if ended_at is None]
        if former and (is_under, former[0]) != (root.name, self._root.name):
            raise ConfigError(
                f"a rotation from the root key {former[0]} to {is_under} was begun and is not over",
                hint=f"configure {former[0]} until `deltarelay keys rotate` to {is_under} has ended",
            )
        if is_under == root.name != self._root.name:
            # Else what is configured, and about to be destroyed, is none of ours, or an alias of the key in use by now
            if self._root.name not in {name for _, name, _ in epochs[1:]} or _leads_to(self._root, root):
                raise another_root(is_under, self._root.name)
            return int(newest)
        # By its name, or in KMS by an alias: an alias may also have been moved on to the new key meanwhile
        if root.name in {name for _, name, _ in epochs} or root.name == self._root.name:
            raise _old_root()
        if is_under != self._root.name:
            raise another_root(is_under, self._root.name)
        if _opens_what_wraps(root, self._root):
            raise _old_root()
        self._begin(work, newest + 1, root)
        return int(newest) + 1

    def root_gone(self, root: str, day: dt.date) -> None:
        """Keep that this root key is destroyed on that day: backups that were made under it are unreadable from then on."""
        with self._database.transaction() as work:
            if not work.count(
                "update {epoch} set root_gone_on = %s where root = %s and ended_at is not null", [day, root]
            ):
                raise ConfigError(
                    f"no epoch that is over was under the root key {root}", hint="`deltarelay keys status` shows them"
                )

    def roots(self) -> dict[str, dt.date | None]:
        """The root keys of all epochs, the latest first, with the day on which each is destroyed, where that is known."""
        with self._database.transaction() as work:
            return dict(work.rows("select root, root_gone_on from {epoch} order by epoch desc"))

    def status(self) -> RegistryStatus:
        with self._database.transaction() as work:
            epochs = work.rows(
                "select epoch, root, began_at, ended_at, root_gone_on,"
                " (select count(*) from {key} k where k.epoch = e.epoch and k.shredded_at is null)"
                " from {epoch} e order by epoch desc"
            )
            counts = work.row(
                "select (select count(distinct token) from {identifier}),"
                " (select count(*) from {key} where shredded_at is null),"
                " (select count(*) from {key} where shredded_at is not null),"
                f" (select count(*) {_UNLINKED})"
            )
        assert counts is not None
        return RegistryStatus(tuple(Epoch(*one) for one in epochs), *counts)

    def _move(self, epoch: int, root: Root, after: bytes) -> tuple[bytes, int] | None:
        """A batch of keys into the epoch, of those whose ids come after this one; → the last id, and how many."""
        with self._database.transaction() as work:
            # By the index on the ids: a sort would read all keys that are left for every batch of them
            work.execute("set local enable_sort = off; set local enable_bitmapscan = off")
            rows = work.rows(
                "select key_id, token, class, epoch, wrapped, commitment from {key}"
                " where key_id > %b and shredded_at is null and epoch < %s order by key_id limit %s for update",
                [after, epoch, BATCH],
            )
            if not rows:
                return None
            sealer, wrapped = Sealer(), []
            for key_id, token, class_name, old, sealed, committed in rows:
                key = self._opened(work, (key_id, token, class_name), old, sealed, committed)
                shard = self._shard_key(work, epoch, shard_of(token), root)
                wrapped.append(sealer.seal(shard, key, about=about_key(key_id, token, class_name)))
            work.execute(
                "update {key} k set epoch = %s, wrapped = n.wrapped"
                " from unnest(%b::bytea[], %b::bytea[]) as n (key_id, wrapped) where k.key_id = n.key_id",
                [epoch, [row[0] for row in rows], wrapped],
            )
        return bytes(rows[-1][0]), len(rows)

    def _move_links(self, epoch: int, root: Root) -> int:
        """A batch of links into the epoch; → how many."""
        with self._database.transaction() as work:
            rows = work.rows(
                "select lookup, token, epoch, mac from {identifier} where epoch < %s limit %s for update",
                [epoch, BATCH],
            )
            links = sorted(self._verified(work, rows).items())
            if links:
                self._put_macs(work, epoch, self._mac_key(work, epoch, root), links)
        return len(links)

    def _begin(self, work: Transaction, epoch: int, root: Root) -> None:
        mac = root.wrap(os.urandom(KEY_BYTES), about=about_mac(epoch))
        work.execute("insert into {epoch} (epoch, root, mac) values (%s, %s, %s)", [epoch, root.name, mac])
        for shard in range(SHARDS):
            work.execute(
                "insert into {shard} (epoch, shard, wrapped) values (%s, %s, %s)",
                [epoch, shard, root.wrap(os.urandom(KEY_BYTES), about=about_shard(epoch, shard))],
            )

    def _newest(self, work: Transaction) -> tuple[int, str]:
        row = work.row("select epoch, root from {epoch} order by epoch desc limit 1")
        if row is None:
            raise empty_registry()
        return int(row[0]), str(row[1])

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lookup_key(self, root: Root | None = None) -> bytes:
        if self._lookup is None:
            with without_macs(), self._database.transaction() as work:
                row = work.row("select epoch, wrapped, root, mac from {lookup_key} join {epoch} using (epoch)")
            if row is None:
                raise empty_registry()
            epoch, wrapped, name, mac = row
            if mac is None:
                raise not_upgraded()
            self._lookup = self._by_name(name, root or self._root).unwrap(wrapped, about=about_lookup(epoch))
        return self._lookup

    def _known(self, work: Transaction, lookups: Sequence[Sequence[bytes]]) -> dict[bytes, bytes]:
        known: dict[bytes, bytes] = {}
        for some in _batches({one for own in lookups for one in own}):
            rows = work.rows(
                "select lookup, token, epoch, mac from {identifier} where lookup = any(%b::bytea[])", [some]
            )
            known |= self._verified(work, rows)
        return known

    def _verified(self, work: Transaction, links: Iterable[tuple[bytes, bytes, int, bytes]]) -> dict[bytes, bytes]:
        """Token by lookup, of rows of ``identifier``. Raises VerificationError for one that this package has not written."""
        known: dict[bytes, bytes] = {}
        altered: list[str] = []
        for lookup, token, epoch, mac in links:
            key = self._mac_key(work, epoch, self._root)
            if hmac.compare_digest(mac, mac_of(key, lookup, token, epoch)):
                known[bytes(lookup)] = bytes(token)
            else:
                altered.append(bytes(lookup).hex())
        if altered:
            raise VerificationError(
                f"{len(altered)} links from an identifier to a person's keys are not those that were made, such as that of "
                f"the lookup {altered[0]} in the table identifier: it would lead to another person's keys",
                hint="somebody has altered the key registry: restore a backup that `deltarelay keys restore-check` approves",
                lookups=altered[:20],
            )
        return known

    def _put_macs(self, work: Transaction, epoch: int, mac_key: bytes, links: Sequence[tuple[bytes, bytes]]) -> None:
        macs = [mac_of(mac_key, lookup, token, epoch) for lookup, token in links]
        work.execute(
            "update {identifier} i set epoch = %s, mac = n.mac"
            " from unnest(%b::bytea[], %b::bytea[]) as n (lookup, mac) where i.lookup = n.lookup",
            [epoch, [lookup for lookup, _ in links], macs],
        )

    def _mac_key(self, work: Transaction, epoch: int, root: Root) -> bytes:
        if epoch not in self._macs:
            row = work.row("select mac, root from {epoch} where epoch = %s", [epoch])
            if row is None or row[0] is None:
                raise VerificationError(
                    f"the registry has links of epoch {epoch}, and the key of their MACs is gone",
                    hint="restore the registry",
                )
            self._macs[epoch] = self._by_name(row[1], root).unwrap(row[0], about=about_mac(epoch))
        return self._macs[epoch]

    def _living(self, work: Transaction, wanted: Sequence[tuple[bytes, str]]) -> dict[tuple[bytes, str], PersonKey]:
        # Not a join with what is wanted: while the table has no statistics it sorts all keys there are
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
                self._opened(work, (key_id, token, class_name), epoch, wrapped, committed),
            )
            for key_id, token, class_name, epoch, wrapped, committed in rows
            if (token, class_name) in asked
        }

    def _create(self, work: Transaction, missing: Sequence[tuple[bytes, str]]) -> dict[tuple[bytes, str], PersonKey]:
        # Until the end of the transaction no epoch begins or ends: its keys would be left in one whose shard keys go
        work.execute("lock table {epoch} in row share mode")
        epoch, root = self._newest(work)
        told = work.rows(
            "select lookup, token, epoch, mac from {identifier} where token = any(%b::bytea[])",
            [sorted({token for token, _ in missing})],
        )
        linked = set(self._verified(work, told).values())
        # By whom: who was erased since the token was had. It leads to nobody any more, so nobody could erase a new key
        erased = dict(
            work.rows(
                "select t.token, (select max(k.shredded_by) from {key} k where k.token = t.token and k.wrapped is null)"
                " from unnest(%b::bytea[]) t (token)",
                [sorted({token for token, _ in missing} - linked)],
            )
        )
        sealer, rows, dead = Sealer(), [], {}
        for token, class_name in missing:
            key_id, key = os.urandom(KEY_ID_BYTES), os.urandom(KEY_BYTES)
            wrapped = None
            if token in erased:
                dead[token, class_name] = PersonKey(key_id, token, class_name, commitment(key), key)
            else:
                shard = self._shard_key(work, epoch, shard_of(token), self._by_name(root, self._root))
                wrapped = sealer.seal(shard, key, about=about_key(key_id, token, class_name))
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
        return self._living(work, missing) | dead

    def _opened(
        self, work: Transaction, place: tuple[bytes, bytes, str], epoch: int, wrapped: bytes, committed: bytes
    ) -> bytes:
        key_id, token, _ = place
        shard = self._shard_key(work, epoch, shard_of(token), self._root)
        try:
            key = self._opener.open(shard, wrapped, about=about_key(*place))
        except NotOpened:
            key = None
        if key is None or commitment(key) != committed:
            raise VerificationError(
                f"the key {key_id.hex()} in the registry is not the one that was made",
                hint="somebody has altered the registry: restore it, and check it with `deltarelay keys restore-check`",
                key_id=key_id.hex(),
            )
        return key

    def _shard_key(self, work: Transaction, epoch: int, shard: int, root: Root) -> bytes:
        if (epoch, shard) not in self._shards:
            row = work.row(
                "select wrapped, root from {shard} join {epoch} using (epoch) where epoch = %s and shard = %s",
                [epoch, shard],
            )
            if row is None:
                raise VerificationError(
                    f"the registry has keys of epoch {epoch}, and its shard keys are gone", hint="restore the registry"
                )
            self._shards[epoch, shard] = self._by_name(row[1], root).unwrap(row[0], about=about_shard(epoch, shard))
        return self._shards[epoch, shard]

    def _by_name(self, name: str, root: Root) -> Root:
        """Which of the two at hand it is: while a rotation is at work there are two."""
        for one in (root, self._root):
            if one.name == name:
                return one
        raise another_root(name, self._root.name)


def _opens_what_wraps(root: Root, other: Root) -> bool:
    drawn = os.urandom(KEY_BYTES)
    try:
        return root.unwrap(other.wrap(drawn, about="deltarelay probe"), about="deltarelay probe") == drawn
    except RootRefused:
        return False


def _leads_to(former: Root, root: Root) -> bool:
    try:
        return _opens_what_wraps(root, former)
    except ConfigError as error:
        if error.condition in UNUSABLE:  # about to be destroyed already, by a try before this one
            return False
        raise


def another_root(is_under: str, configured: str) -> ConfigError:
    return ConfigError(
        f"the key registry is under the root key {is_under}, and {configured} is configured",
        hint="configure the one that `deltarelay keys rotate` went to; where that was cut off, run it again",
    )


def empty_registry() -> ConfigError:
    return ConfigError("the key registry is empty", hint="`deltarelay keys init` begins it")


@contextmanager
def without_macs() -> Iterator[None]:
    """Reports a registry that an earlier release made, in place of the missing column."""
    try:
        yield
    except ConfigError as error:
        if error.condition != _NO_COLUMN:
            raise
        raise not_upgraded() from None


def not_upgraded() -> ConfigError:
    return ConfigError(
        "the key registry is from before its links from identifiers to persons were authenticated",
        hint="make sure that nobody has altered it, then run `deltarelay keys upgrade` once; where that was done already, "
        "somebody has altered it since: restore a backup",
    )


def _old_root() -> ConfigError:
    return ConfigError(
        "an epoch is under a root key of its own: an older backup would open with the same one",
        hint="make a new root key and name it",
    )


def _lookup_of(lookup_key: bytes, *parts: str) -> bytes:
    # with their lengths, or ("ab", "c") would be ("a", "bc")
    message = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
    return hmac.digest(lookup_key, message, "sha256")


def about_key(key_id: bytes, token: bytes, class_name: str) -> bytes:
    """What a person's key is bound to: swapped with another of theirs it opens nothing."""
    return key_id + token + class_name.encode()


def about_shard(epoch: int, shard: int) -> str:
    return f"deltarelay shard key {epoch}/{shard}"


def about_mac(epoch: int) -> str:
    return f"deltarelay mac key {epoch}"


def mac_of(mac_key: bytes, lookup: bytes, token: bytes, epoch: int) -> bytes:
    """Of a row of ``identifier``."""
    message = _LINK + len(lookup).to_bytes(8, "big") + lookup + len(token).to_bytes(8, "big") + token
    return hmac.digest(mac_key, message + epoch.to_bytes(8, "big"), "sha256")


def about_lookup(epoch: int) -> str:
    """Not that of a registry without MACs: nobody without the root key makes one out of a registry that has them."""
    return f"deltarelay lookup key v2 {epoch}"


def shard_of(token: bytes) -> int:
    return token[0] % SHARDS


def _batches(items: Collection[T]) -> Iterator[list[T]]:
    listed = list(items)
    return (listed[start : start + BATCH] for start in range(0, len(listed), BATCH))


def _pairs(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    return ((bytes(one), bytes(other)) for one, other in rows)


def _beside_others(work: Transaction) -> None:
    """Until the end of the transaction nobody shreds: a key cannot be handed out that is being destroyed."""
    work.execute("lock table {shreds} in row share mode")


def _alone(work: Transaction) -> None:
    work.execute("lock table {shreds} in exclusive mode")

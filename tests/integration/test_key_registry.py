"""The registry of persons' keys on a real PostgreSQL: one key for each, gone when it is shredded, also for old backups."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from audit.database import Transaction
from audit.encryption.aead import commitment
from audit.encryption.column_groups import PersonColumns
from audit.encryption.encrypt import ColumnEncryption
from audit.encryption.key_registry import Registry, RegistryIncomplete, batches, person_keys
from audit.encryption.key_registry.bindings import lookup_key_binding
from audit.encryption.key_registry.rotation import Rotation
from audit.encryption.key_registry.tables import DEFINITIONS
from audit.encryption.root_keys import FileRoot, Root
from audit.migrations import StateTooNew
from cdf.errors import ConfigError, Fenced, VerificationError
from tests.fixtures.fix_postgres import Pg


def dies(*_: object, **__: object) -> None:
    raise ConnectionError


ANNA = [("customer_id", "7"), ("email", "anna@example.org")]
BOB = [("customer_id", "8"), ("email", "bob@example.org")]


class Alias:
    """A root key by another name, as KMS has them. ``gone``: about to be destroyed."""

    def __init__(self, root: FileRoot, *, gone: bool = False) -> None:
        self.root, self.gone, self.name = root, gone, f"alias of {root.name}"

    def wrap(self, key: bytes, *, context: str) -> bytes:
        if self.gone:
            raise ConfigError("about to be destroyed", condition="KMSInvalidStateException")
        return self.root.wrap(key, context=context)

    def unwrap(self, wrapped: bytes, *, context: str) -> bytes:
        return self.root.unwrap(wrapped, context=context)

    def retire(self, days: int) -> dt.date | None:  # noqa: ARG002
        return None


class Safe:
    def __init__(self, pg: Pg) -> None:
        self.pg, self.root = pg, FileRoot.generate()
        self.registry = self.opened(self.root)
        self.registry.prepare()

    def opened(self, root: Root) -> Registry:
        """As another process would."""
        return Registry(self.pg.dsn, root, schema=self.pg.schema)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.pg.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("set search_path to {}").format(sql.Identifier(self.pg.schema)))
            cursor = connection.execute(statement, values)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def everything(self) -> str:
        tables = ("epoch", "shard", "lookup_key", "identifier", "key", "shreds")
        return "\n".join(str(row) for table in tables for row in self.rows(f"select one::text from {table} one"))

    def backup(self) -> Callable[[], None]:
        """→ puts all rows back as they are now."""
        names = ("epoch", "shard", "lookup_key", "identifier", "key", "shreds")
        for name in names:
            self.rows(f"create table kept_{name} as table {name}")

        def restore() -> None:
            for name in reversed(names):
                self.rows(f"delete from {name}")
            for name in names:
                self.rows(f"insert into {name} select * from kept_{name}")

        return restore


@pytest.fixture
def safe(pg: Pg) -> Safe:
    return Safe(pg)


def test_one_key_for_a_person_and_a_class(safe: Safe) -> None:
    anna, bob, blank = safe.registry.find_or_create_tokens("customer", [ANNA, BOB, []])
    assert blank is None
    assert anna is not None
    assert bob is not None
    assert anna != bob
    made = safe.registry.find_or_create_keys([(anna, "contact"), (anna, "billing"), (bob, "contact")])
    assert len({one.key for one in made.values()}) == len({one.key_id for one in made.values()}) == 3
    assert {one.commitment for one in made.values()} == {commitment(one.key) for one in made.values()}

    # By any of the identifiers, in another process, and made once
    again = safe.opened(safe.root)
    assert again.find_tokens("customer", [ANNA[1:], BOB, [("email", "nobody")]]) == [anna, bob, None]
    assert again.find_tokens("employee", [ANNA]) == [None]
    assert again.find_keys([(anna, "contact"), (bob, "contact"), (bob, "billing")]) == {
        place: made[place] for place in ((anna, "contact"), (bob, "contact"))
    }
    assert again.find_or_create_keys([(anna, "contact")])[anna, "contact"] == made[anna, "contact"]
    assert again.read_status().living == 3
    assert (
        again.read_states([made[bob, "contact"].key_id, b"never"])[made[bob, "contact"].key_id].key
        == made[bob, "contact"].key
    )

    # Neither identifiers nor keys are in the database, or shown
    text = safe.everything()
    for secret in (ANNA[1][1], BOB[1][1], safe.root.secret(), *(one.key.hex() for one in made.values())):
        assert secret not in text
    assert made[anna, "contact"].key_id.hex() in text  # the control
    assert made[anna, "contact"].key.hex() not in repr(made)
    assert repr(made[anna, "contact"].key) not in repr(made)


def test_two_people_with_one_email_are_two(safe: Safe) -> None:
    both = (
        [("customer_id", "1"), ("email", "family@example.org")],
        [("customer_id", "2"), ("email", "family@example.org")],
    )
    one, two = safe.registry.find_or_create_tokens("customer", both)
    assert one != two
    assert safe.registry.find_tokens("customer", [both[0][1:]]) == [one]


def test_whom_an_earlier_version_knows_by_another_form_stays_who_it_is(safe: Safe) -> None:
    """It stored the address in lower case, composed as the row had it."""
    person = PersonColumns("customer", "email", "email", "email", (("contact", ("name",)),))
    sealing = ColumnEncryption((person,), lambda: safe.registry)
    [stored] = safe.registry.find_or_create_tokens("customer", [[("email", "jo\u0308rg@example.org")]])
    values = ["J\u00f6rg@example.org", "new@example.org", "\u200bNEW@example.org"]
    found = [token for _, (token, _) in sealing.get_keys_by_value(person, values)]
    assert found[0] == stored
    assert found[1] == found[2] != stored


@pytest.mark.parametrize("batch", [1, 7, 5_000])
def test_many_who_ask_at_once_get_one_key(safe: Safe, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(batches, "BATCH", batch)
    people = [[("customer_id", str(n)), ("email", f"{n}@example.org")] for n in range(20)]

    def ask(turn: int) -> list[Any]:
        mine = safe.opened(safe.root)
        order = people if turn % 2 else people[::-1]
        tokens = mine.find_or_create_tokens("customer", order)
        keys = mine.find_or_create_keys([(token, "contact") for token in tokens if token])
        found = {
            str(one): (token, keys[token, "contact"].key) for one, token in zip(order, tokens, strict=True) if token
        }
        return sorted(found.items())

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]) == 20
    assert safe.registry.read_status().living == 20
    assert safe.registry.read_status().subjects == 20


class TestShred:
    def test_the_key_is_gone_and_so_is_the_person(self, safe: Safe) -> None:
        anna, bob = self.two(safe)
        made = safe.registry.find_or_create_keys([(anna, "contact"), (anna, "billing"), (bob, "contact")])
        # A class under a hold keeps its key, and the person can still be found by it
        assert safe.registry.destroy_keys([anna], keeping=["billing"], run="er-1").to_dict() == {
            "keys": 1,
            "subjects": 0,
        }
        assert safe.registry.find_tokens("customer", [ANNA]) == [anna]
        assert safe.registry.destroy_keys([anna], run="er-2").to_dict() == {"keys": 1, "subjects": 1}
        assert safe.registry.destroy_keys([anna], run="er-2").to_dict() == {"keys": 0, "subjects": 0}
        assert safe.registry.find_tokens("customer", [ANNA, ANNA[1:]]) == [None, None]
        states = safe.registry.read_states([one.key_id for one in made.values()])
        told = {made[place].key_id: place for place in made}
        assert {told[id]: (one.key is None, one.shredded_by) for id, one in states.items()} == {
            (anna, "contact"): (True, "er-1"),
            (anna, "billing"): (True, "er-2"),
            (bob, "contact"): (False, None),
        }
        assert safe.registry.find_keys([(anna, "contact"), (bob, "contact")]).keys() == {(bob, "contact")}

    def test_who_signs_up_again_is_somebody_new(self, safe: Safe) -> None:
        anna, _ = self.two(safe)
        old = safe.registry.find_or_create_keys([(anna, "contact")])[anna, "contact"]
        safe.registry.destroy_keys([anna], run="er-1")
        [new] = safe.registry.find_or_create_tokens("customer", [ANNA])
        assert new is not None
        assert new != anna
        made = safe.registry.find_or_create_keys([(new, "contact")])[new, "contact"]
        assert made.key != old.key
        assert made.key_id != old.key_id
        # Also where a class was left, and the token with it
        safe.registry.find_or_create_keys([(new, "billing")])
        safe.registry.destroy_keys([new], keeping=["billing"], run="er-2")
        again = safe.registry.find_or_create_keys([(new, "contact")])[new, "contact"]
        assert again.key not in (old.key, made.key)

    def test_who_is_erased_before_their_keys_are_asked_for_gets_none_that_lives(self, safe: Safe) -> None:
        """A pipeline has had the token, the person is erased, and the pipeline asks on: nothing leads to the token now."""
        anna, bob = self.two(safe)
        old = safe.registry.find_or_create_keys([(anna, "contact")])[anna, "contact"]
        safe.registry.destroy_keys([anna], run="er-1")
        wanted = [(anna, "contact"), (anna, "billing"), (bob, "contact")]
        made = safe.registry.find_or_create_keys(wanted)
        assert made.keys() == set(wanted)
        assert old.key not in {one.key for one in made.values()}
        states = safe.registry.read_states([one.key_id for one in made.values()])
        assert {
            place: (states[one.key_id].key is None, states[one.key_id].shredded_by) for place, one in made.items()
        } == {
            (anna, "contact"): (True, "er-1"),
            (anna, "billing"): (True, "er-1"),
            (bob, "contact"): (False, None),
        }
        assert safe.registry.find_keys(wanted).keys() == {(bob, "contact")}
        assert {made[anna, "contact"].key_id, made[anna, "billing"].key_id} < set(
            safe.registry.list_destroyed_keys([anna])
        )
        assert made[anna, "contact"].key.hex() not in safe.everything()

    def test_who_is_erased_before_they_had_any_key_gets_none_that_lives(self, safe: Safe) -> None:
        anna, _ = self.two(safe)
        safe.registry.destroy_keys([anna], run="er-1")
        made = safe.registry.find_or_create_keys([(anna, "contact")])[anna, "contact"]
        assert safe.registry.read_states([made.key_id])[made.key_id].key is None
        assert safe.registry.find_keys([(anna, "contact")]) == {}

    def two(self, safe: Safe) -> list[bytes]:
        return [token for token in safe.registry.find_or_create_tokens("customer", [ANNA, BOB]) if token]


class TestAltered:
    """Hands in the database."""

    def test_another_key_in_its_place(self, safe: Safe) -> None:
        anna, bob = TestShred().two(safe)
        made = safe.registry.find_or_create_keys([(anna, "contact"), (bob, "contact")])
        mine, other = (made[one, "contact"].key_id for one in (anna, bob))
        safe.rows("update key set wrapped = (select wrapped from key where key_id = %s) where key_id = %s", other, mine)
        with pytest.raises(VerificationError, match="not the one that was created"):
            safe.registry.find_keys([(anna, "contact")])
        # With its commitment, and its whole row but for the id: the wrap is bound to both
        safe.rows(
            "update key set commitment = (select commitment from key where key_id = %s) where key_id = %s", other, mine
        )
        with pytest.raises(VerificationError, match="not the one that was created"):
            safe.registry.read_states([mine])
        assert safe.registry.find_keys([(bob, "contact")])[bob, "contact"] == made[bob, "contact"]
        # Another commitment alone
        safe.rows("update key set commitment = decode(repeat('00', 32), 'hex') where key_id = %s", other)
        with pytest.raises(VerificationError, match="not the one that was created"):
            safe.registry.find_keys([(bob, "contact")])

    def test_a_person_s_own_other_key(self, safe: Safe) -> None:
        """Else an erasure that keeps one class would destroy it and keep the other one."""
        anna, _ = TestShred().two(safe)
        safe.registry.find_or_create_keys([(anna, "contact"), (anna, "billing")])
        safe.rows("drop index key_token_class_idx")
        safe.rows("update key set class = case class when 'contact' then 'billing' else 'contact' end")
        with pytest.raises(VerificationError, match="not the one that was created"):
            safe.registry.find_keys([(anna, "contact")])

    def test_another_root_key(self, safe: Safe) -> None:
        other = safe.opened(FileRoot.generate())
        with pytest.raises(ConfigError, match=r"uses the root key file:.* but file:.* is configured"):
            other.find_tokens("customer", [ANNA])

    def test_an_empty_one(self, pg: Pg) -> None:
        with pytest.raises(ConfigError, match="does not exist") as refused:
            Registry(pg.dsn, FileRoot.generate(), schema=pg.schema).find_tokens("customer", [ANNA])
        assert "keys init" in str(refused.value.hint)


class TestEpochs:
    def test_living_keys_move_and_old_ones_open_nothing(self, safe: Safe, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batches, "BATCH", 3)
        people = [[("customer_id", str(n))] for n in range(10)]
        tokens = [one for one in safe.registry.find_or_create_tokens("customer", people) if one]
        made = safe.registry.find_or_create_keys([(one, "contact") for one in tokens])
        gone = made[tokens[0], "contact"]
        restore = safe.backup()
        safe.registry.destroy_keys([tokens[0]], run="er-1")

        # Yesterday's backup brings the person back, as long as its root key is there
        restore()
        assert safe.opened(safe.root).find_keys([(tokens[0], "contact")])[tokens[0], "contact"].key == gone.key
        safe.registry.destroy_keys([tokens[0]], run="er-1")
        told: list[int] = []
        new = FileRoot.generate()
        epoch = safe.registry.rotate(new, progress=told.append)
        assert (epoch.epoch, epoch.root, epoch.keys) == (2, new.name, 9)
        assert told == [3, 6, 9]
        for registry in (safe.registry, safe.opened(new)):
            assert registry.find_tokens("customer", people)[1:] == tokens[1:]
            assert registry.find_keys([(one, "contact") for one in tokens]) == {
                place: one for place, one in made.items() if place[0] != tokens[0]
            }
        with pytest.raises(ConfigError, match="is configured"):
            safe.opened(safe.root).find_keys([(tokens[1], "contact")])
        assert safe.rows("select distinct epoch from shard") == [(2,)]

        # After the epoch the backup opens with the old root key alone, and not with today's
        day = dt.date(2026, 12, 1)
        safe.registry.record_root_destruction(safe.root.name, day)
        assert [(one.epoch, one.root_gone_on) for one in safe.registry.read_status().epochs] == [(2, None), (1, day)]
        with pytest.raises(ConfigError, match="no finished epoch"):
            safe.registry.record_root_destruction(new.name, day)
        restore()
        with pytest.raises(ConfigError, match="is configured"):
            safe.opened(new).find_keys([(tokens[0], "contact")])

    def test_it_is_taken_up_wherever_it_was_cut_off(self, safe: Safe, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batches, "BATCH", 2)
        people = [[("customer_id", str(n))] for n in range(6)]
        tokens = [one for one in safe.registry.find_or_create_tokens("customer", people) if one]
        made = safe.registry.find_or_create_keys([(one, "contact") for one in tokens])
        new = FileRoot.generate()
        tries = 0
        for writes in self.dying(monkeypatch):
            tries += 1
            mine = safe.opened(safe.root)
            try:
                mine.rotate(new)
            except ConnectionError:
                writes.clear()
                # A third root key is not taken up with
                with pytest.raises(ConfigError, match=r"is configured|is not finished"):
                    safe.opened(FileRoot.generate()).rotate(new)
                continue
            break
        assert tries == 6  # the epoch, three batches, the end
        assert safe.opened(new).find_keys([(one, "contact") for one in tokens]) == made
        assert [(one.epoch, one.keys) for one in safe.opened(new).read_status().epochs] == [(2, 6), (1, 0)]

    def test_nothing_is_destroyed_while_a_key_is_in_an_older_epoch(
        self, safe: Safe, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where a transaction from before the epoch commits after the last key was looked for."""
        (token,) = safe.registry.find_or_create_tokens("customer", [[("customer_id", "1")]])
        assert token is not None
        made = safe.registry.find_or_create_keys([(token, "contact")])
        new = FileRoot.generate()
        with monkeypatch.context() as patched:
            patched.setattr(Rotation, "_rewrap_keys", lambda *_: None)
            with pytest.raises(Fenced, match="an older epoch in the meantime: no key was destroyed"):
                safe.registry.rotate(new)
        assert safe.rows("select distinct epoch from shard order by 1") == [(1,), (2,)]
        safe.opened(safe.root).rotate(new)
        assert safe.opened(new).find_keys([(token, "contact")]) == made

    def dying(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
        """The first turn dies before it has written anything, each further one after one thing."""
        committed: list[int] = []
        real = Transaction.execute
        for most in [0, *[1] * 20]:

            def execute(self: Transaction, statement: str, *more: Any, most: int = most) -> Any:
                if statement.startswith(("insert into {epoch}", "update {key} k", "delete from {shard}")):
                    committed.append(1)
                    if len(committed) > most:
                        raise ConnectionError
                return real(self, statement, *more)

            monkeypatch.setattr(Transaction, "execute", execute)
            yield committed

    def test_an_epoch_that_has_lost_some_of_its_keys_gives_none(self, safe: Safe) -> None:
        """As release 0.1 began it, with rows from 2 on lost: a new key would be unreadable once they are restored."""
        (token,) = safe.registry.find_or_create_tokens("customer", [[("customer_id", "1")]])
        assert token is not None
        safe.rows("insert into shard select epoch, 1, wrapped from shard returning epoch")
        with pytest.raises(VerificationError, match="the key of that epoch that wraps them is missing"):
            safe.registry.find_or_create_keys([(token, "contact")])

    def test_the_same_root_key_is_no_epoch(self, safe: Safe) -> None:
        with pytest.raises(ConfigError, match="a root key of its own"):
            safe.registry.rotate(safe.root)
        assert len(safe.registry.read_status().epochs) == 1
        second = FileRoot.generate()
        safe.registry.rotate(second)
        with pytest.raises(ConfigError, match="a root key of its own"):  # backups of the first epoch would open again
            safe.opened(second).rotate(safe.root)
        assert [one.epoch for one in safe.registry.read_status().epochs] == [2, 1]

    def test_run_again_it_is_over_but_for_a_root_key_that_is_not_the_former(self, safe: Safe) -> None:
        """Whoever runs it again is about to destroy the former one."""
        second = FileRoot.generate()
        safe.registry.rotate(second)
        assert safe.opened(safe.root).rotate(second).epoch == 2
        alias, used_up = Alias(second), Alias(safe.root, gone=True)
        for never_one in (FileRoot.generate(), alias):
            with pytest.raises(ConfigError, match="is configured"):
                safe.opened(never_one).rotate(second)
        # An alias that was the former one's, and leads to the new one by now; one whose key is about to be destroyed
        safe.rows("update epoch set root = %s where epoch = 1", alias.name)
        with pytest.raises(ConfigError, match="is configured"):
            safe.opened(alias).rotate(second)
        safe.rows("update epoch set root = %s where epoch = 1", used_up.name)
        assert safe.opened(used_up).rotate(second).epoch == 2
        assert [one.root_gone_on for one in safe.opened(second).read_status().epochs] == [None, None]

    def test_one_that_was_cut_off_is_ended_before_another_begins(
        self, safe: Safe, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        anna, _ = TestShred().two(safe)
        made = safe.registry.find_or_create_keys([(anna, "contact")])
        second, third = FileRoot.generate(), FileRoot.generate()
        with monkeypatch.context() as patch:
            patch.setattr(Rotation, "_rewrap_keys", dies)
            with pytest.raises(ConnectionError):
                safe.registry.rotate(second)
        for configured, to in ((safe.root, third), (second, third), (second, second)):
            with pytest.raises(ConfigError, match="has begun and is not finished") as refused:
                safe.opened(configured).rotate(to)
            assert str(refused.value.hint).startswith(f"configure {safe.root.name} until")
        safe.opened(safe.root).rotate(second)
        assert safe.opened(second).find_keys([(anna, "contact")]) == made
        assert [one.epoch for one in safe.opened(second).read_status().epochs] == [2, 1]

    def test_a_key_that_is_made_meanwhile_is_not_left_behind(self, safe: Safe, monkeypatch: pytest.MonkeyPatch) -> None:
        anna, _ = TestShred().two(safe)
        second, real = FileRoot.generate(), person_keys.find_newest_epoch
        told = threading.Event()

        def newest(work: Transaction) -> tuple[int, str]:
            found = real(work)
            if not told.is_set():
                told.set()
                time.sleep(1)  # in which the rotation would be over
            return found

        monkeypatch.setattr(person_keys, "find_newest_epoch", newest)
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(safe.opened(safe.root).find_or_create_keys, [(anna, "contact")])
            assert told.wait(10)
            safe.registry.rotate(second)
        assert safe.opened(second).find_keys([(anna, "contact")]) == made.result()

    def test_who_has_the_former_root_key_meanwhile_is_told(self, safe: Safe) -> None:
        other = safe.opened(safe.root)
        anna, _ = TestShred().two(safe)
        safe.registry.rotate(FileRoot.generate())
        with pytest.raises(ConfigError, match=r"keys rotate|is configured"):
            other.find_or_create_keys([(anna, "contact")])


class TestLinks:
    """From an identifier to a person's keys: one that a hand has altered is named wherever it is used."""

    def test_swapped_tokens_are_named(self, safe: Safe) -> None:
        anna, bob = TestShred().two(safe)
        safe.registry.find_or_create_keys([(anna, "contact"), (bob, "contact")])
        restore = safe.backup()
        swap = "update identifier set token = case token when %s then %s else %s end where token in (%s, %s)"
        relabel = "update identifier set token = %s where token = %s"
        replay = "update identifier i set mac = other.mac from identifier other where i.token = %s and other.token = %s"
        uses: list[Callable[[Registry], object]] = [
            lambda one: one.find_tokens("customer", [ANNA, BOB]),
            lambda one: one.find_or_create_tokens("customer", [ANNA, BOB]),
            lambda one: one.find_or_create_keys([(anna, "billing"), (bob, "billing")]),
            lambda one: one.destroy_keys([anna, bob], run="er-1"),
            lambda one: one.rotate(FileRoot.generate()),
        ]
        for statement, values in (
            (swap, [anna, bob, anna, anna, bob]),
            (relabel, [anna, bob]),
            (replay, [anna, bob]),
            ("update identifier set mac = %s where token = %s", [b"", anna]),
            ("update identifier set lookup = %s || lookup where token = %s", [b"x", anna]),
        ):
            safe.rows(statement, *values)
            for at, use in enumerate(uses[2:] if "lookup = " in statement else uses):
                with pytest.raises(VerificationError, match=r"links? from an identifier .* the lookup [0-9a-f]{60}"):
                    use(safe.opened(safe.root))
                assert at == 4 or safe.registry.read_status().living == 2  # nothing was destroyed
            restore()
        assert safe.opened(safe.root).find_tokens("customer", [ANNA, BOB]) == [anna, bob]

    def test_a_link_from_before_a_rotation_is_not_taken_up_again(self, safe: Safe) -> None:
        anna, _ = TestShred().two(safe)
        safe.backup()
        second = FileRoot.generate()
        safe.registry.rotate(second)
        assert safe.opened(second).find_tokens("customer", [ANNA]) == [anna]
        assert safe.rows("select epoch, mac is null from epoch order by epoch") == [(1, True), (2, False)]
        safe.rows("delete from identifier")
        safe.rows("insert into identifier select * from kept_identifier")
        with pytest.raises(VerificationError, match="the key of their MACs is missing"):
            safe.opened(second).find_tokens("customer", [ANNA])

    @pytest.mark.parametrize(
        "statement", ["delete from identifier where token = %s", "update key set token = 'x' where token = %s"]
    )
    def test_a_key_that_no_erasure_would_reach(self, safe: Safe, statement: str) -> None:
        """Put back after the erasure, it would open what the person is certified to be rid of."""
        anna, bob = TestShred().two(safe)
        safe.registry.find_or_create_keys([(anna, "contact"), (bob, "contact")])
        assert safe.registry.read_status().unlinked == 0
        safe.rows(statement, anna)
        assert safe.registry.read_status().unlinked == 1
        found = [one for one in safe.registry.find_tokens("customer", [ANNA, BOB]) if one is not None]
        with pytest.raises(VerificationError, match="no identifier leads to"):
            safe.opened(safe.root).destroy_keys(found, run="er-1")
        assert safe.registry.read_status().living == 2

    def test_the_link_of_each_key_is_not_looked_up(self, safe: Safe) -> None:
        """Without statistics of its tables PostgreSQL would do so, and take too long for a registry of millions."""
        people = 2_000
        tokens = safe.registry.find_or_create_tokens("customer", [[("customer_id", str(one))] for one in range(people)])
        safe.registry.find_or_create_keys([(token, "contact") for token in tokens if token is not None])

        def count_scans(*, inserted: int, updated: int) -> int:
            """Of the index. The server counts a session's rows and scans together, a little after its transaction."""
            deadline = time.monotonic() + 20
            keys = (
                "select n_tup_ins, n_tup_upd from pg_stat_user_tables"
                " where schemaname = current_schema() and relname = 'key'"
            )
            while safe.rows(keys) != [(inserted, updated)]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            [(scans,)] = safe.rows(
                "select idx_scan from pg_stat_user_indexes"
                " where schemaname = current_schema() and indexrelname = 'identifier_token_idx'"
            )
            return int(scans)

        before, anna = count_scans(inserted=people, updated=0), tokens[0]
        assert anna is not None
        safe.registry.destroy_keys([anna], run="er-1")
        assert count_scans(inserted=people, updated=1) - before < people / 10

    def test_a_key_that_the_database_does_not_destroy(self, safe: Safe) -> None:
        """It says of one updated row that one was updated, whatever a trigger has made of it."""
        anna, bob = TestShred().two(safe)
        safe.registry.find_or_create_keys([(anna, "contact"), (anna, "billing"), (bob, "contact")])
        safe.rows(
            f"create function {safe.pg.schema}.keep() returns trigger language plpgsql as 'begin return old; end'",
        )
        safe.rows(f"create trigger keep before update on key for each row execute function {safe.pg.schema}.keep()")
        with pytest.raises(VerificationError, match="is still in the registry after the statement that destroys it"):
            safe.registry.destroy_keys([anna], run="er-1", keeping=["billing"])
        safe.rows("drop trigger keep on key")
        assert safe.registry.find_tokens("customer", [ANNA]) == [anna]
        assert safe.registry.destroy_keys([anna], run="er-1", keeping=["billing"]).keys == 1
        assert len(safe.registry.list_key_ids([anna])) == 2

    @pytest.mark.parametrize("lost", ["key", "reading"])
    def test_a_registry_that_has_lost_a_table_is_not_made_whole_by_an_empty_one(self, safe: Safe, lost: str) -> None:
        anna, _ = TestShred().two(safe)
        made = safe.registry.find_or_create_keys([(anna, "contact")])
        safe.rows(f"alter table {lost} rename to hidden")
        with pytest.raises(RegistryIncomplete, match=f"has no table {lost}$") as refused:
            safe.opened(safe.root).prepare()
        assert "restore the registry from its backup" in str(refused.value.hint)
        safe.rows(f"alter table hidden rename to {lost}")
        safe.opened(safe.root).prepare()
        assert safe.opened(safe.root).find_keys([(anna, "contact")]) == made

    def test_a_registry_that_has_lost_all_tables_is_not_a_new_one(self, safe: Safe) -> None:
        safe.rows(f"drop table {', '.join(DEFINITIONS)} cascade")
        with pytest.raises(RegistryIncomplete, match="has no table epoch, shard, "):
            safe.opened(safe.root).prepare()

    def test_a_newer_registry_is_refused_by_every_command_and_unchanged(self, safe: Safe) -> None:
        anna, _ = TestShred().two(safe)
        safe.rows("insert into schema_version (version, summary) values (2, 'of a newer release')")
        before = safe.everything()
        calls: list[Callable[[Registry], object]] = [
            lambda one: one.prepare(),
            lambda one: one.upgrade(),
            lambda one: one.find_or_create_tokens("customer", [[("customer_id", "9")]]),
            lambda one: one.find_keys([(anna, "contact")]),
            lambda one: one.destroy_keys([anna], run="er-1"),
            lambda one: one.rotate(FileRoot.generate()),
        ]
        for call in calls:
            with pytest.raises(StateTooNew, match="has version 2, and this release knows versions up to 1"):
                call(safe.opened(safe.root))
        assert safe.everything() == before

    def test_a_registry_without_a_recorded_version_goes_on(self, safe: Safe) -> None:
        """That of release 0.1, and one that was restored from a backup."""
        anna, _ = TestShred().two(safe)
        safe.rows("drop table schema_version")
        safe.opened(safe.root).prepare()
        assert safe.opened(safe.root).find_tokens("customer", [ANNA]) == [anna]
        assert safe.rows("select to_regclass('schema_version')") == [(None,)]

    def test_a_registry_of_an_earlier_release_is_upgraded_by_hand(self, safe: Safe) -> None:
        anna, bob = TestShred().two(safe)
        made = safe.registry.find_or_create_keys([(anna, "contact")])
        safe.rows("alter table identifier drop column mac, drop column epoch")
        safe.rows("alter table epoch drop column mac")
        with pytest.raises(VerificationError, match="the MACs of the key registry are missing"):
            safe.opened(safe.root).upgrade()  # else links could be swapped first
        [(wrapped,)] = safe.rows("select wrapped from lookup_key")
        as_before = safe.root.wrap(
            safe.root.unwrap(wrapped, context=lookup_key_binding(1)), context="deltarelay lookup key 1"
        )
        safe.rows("update lookup_key set wrapped = %s", as_before)
        for use in (
            lambda one: one.prepare(),
            lambda one: one.find_or_create_tokens("customer", [ANNA]),
            lambda one: one.rotate(FileRoot.generate()),
        ):
            with pytest.raises(ConfigError) as refused:
                use(safe.opened(safe.root))
            assert "keys upgrade" in str(refused.value.hint)
        with pytest.raises(ConfigError, match="is configured"):
            safe.opened(FileRoot.generate()).upgrade()
        assert safe.opened(safe.root).upgrade() == len(ANNA) + len(BOB)
        assert safe.opened(safe.root).upgrade() == 0
        safe.opened(safe.root).prepare()
        assert safe.opened(safe.root).find_tokens("customer", [ANNA, BOB]) == [anna, bob]
        assert safe.opened(safe.root).find_keys([(anna, "contact")]) == made
        assert safe.rows("select count(*) from identifier where mac is null or epoch <> 1") == [(0,)]

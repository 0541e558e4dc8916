"""The keys of the people whom a window's rows name, beside the rows: asked of the registry once, and sent along as data.

Nothing keeps them for longer than the window is written. As data they are part of no plan; what Spark writes of them to
local disks, on their way and where it shuffles, ``spark.io.encryption.enabled`` encrypts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from audit.encryption.column_groups import SealedPerson, keys_of
from audit.encryption.keys_to_tasks import as_data
from audit.identifiers import stored_forms
from audit.trail.column_history import GROUPS, SEALED
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, UPDATE_PREIMAGE, quoted
from cdf.errors import ConfigError, RowRejected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from audit.encryption.key_registry import Registry

__all__ = ["Keys", "Sealing", "not_text", "with_keys"]

Keys: TypeAlias = "tuple[bytes, list[tuple[bytes, bytes]]]"
"""A person's token, and id and key for each of the classes."""

_KEY = StructType([StructField("key_id", BinaryType()), StructField("key", BinaryType())])
_KEYS = StructType([StructField("token", BinaryType()), StructField("keys", ArrayType(_KEY))])


@dataclass(frozen=True, slots=True)
class Sealing:
    """What is sealed in the trail of a table. ``registry`` is opened when keys are asked for."""

    people: tuple[SealedPerson, ...]
    registry: Callable[[], Registry]

    @property
    def columns(self) -> frozenset[str]:
        """Of all classes, with their case folded."""
        return frozenset(name.casefold() for person in self.people for _, named in person.classes for name in named)

    def schema(self, source: StructType) -> StructType:
        """With the column of ours."""
        return StructType([*source.fields, StructField(SEALED, GROUPS)])

    def problems(self, schema: StructType) -> list[str]:
        """Why rows of this schema cannot be sealed: it would not be known whose they are."""
        names = {name.casefold() for name in schema.names}
        found = [
            f"column {person.column}, which tells whose a row is, is not there: nothing could be sealed"
            for person in self.people
            if person.column.casefold() not in names
        ]
        taken = [f"a column is called {SEALED}, which stands for what is sealed"] if SEALED in names else []
        return found + taken

    def unkeyed(self, feed: DataFrame) -> DataFrame:
        """With no keys for anybody: nothing of it is sealed."""
        from pyspark.sql import functions as F

        return feed.select("*", *(F.lit(None).cast(_KEYS).alias(keys_of(at)) for at in range(len(self.people))))

    def keyed(self, feed: DataFrame, withheld: Collection[int]) -> DataFrame:
        """With ``keys_of`` each person: NULL where the row names nobody there. New people get keys.

        ``withheld``: versions of whose rows before the change no value is kept. Whoever is named by these alone gets none:
        the registry has just lost them. Raises ConfigError where the column is gone that says whose a row is.
        """
        if problems := self.problems(feed.schema):
            raise ConfigError(
                "; ".join(problems), hint="put the column back, or take `classes` out of the configuration"
            )
        for at, person in enumerate(self.people):
            feed = self._with_keys(feed, keys_of(at), person, withheld)
        return feed

    def _with_keys(self, feed: DataFrame, name: str, person: SealedPerson, withheld: Collection[int]) -> DataFrame:
        from pyspark.sql import functions as F

        named = next(column for column in feed.columns if column.casefold() == person.column.casefold())
        value = quoted(named).cast("string")
        asked = feed.where(value.isNotNull())
        if withheld:
            asked = asked.where(~_before(withheld))
        found, values = asked.select(value).distinct().toArrow().column(0), None
        with suppress(UnicodeDecodeError):
            values = found.to_pylist()
        if values is None:
            hint = "correct the value at the source and continue after that version, or start a new trail"
            raise not_text(asked.where(~F.is_valid_utf8(value)), named, hint)
        return with_keys(feed, value, self.keys_by_value(person, values, feed.columns), name)

    def keys_by_value(
        self, person: SealedPerson, values: Sequence[str], columns: Collection[str] | None = None
    ) -> list[tuple[str, Keys]]:
        """For each value that rows have in the person's column. Who is new gets keys."""
        people = [[(person.identifier, form) for form in stored_forms(value, person.spelling)] for value in values]
        # Whom an earlier version knows by another form stays who it is
        found = self.registry().tokens(person.subject, people)
        if new := {one[0]: None for one, token in zip(people, found, strict=True) if token is None}:
            made = self.registry().tokens(person.subject, [[one] for one in new], create=True)
            of_new = dict(zip(new, made, strict=True))
            found = [of_new[one[0]] if token is None else token for one, token in zip(people, found, strict=True)]
        keys = self.keys_by_token(person, [token for token in found if token is not None], columns)
        return list(zip(values, keys, strict=True))

    def keys_by_token(
        self, person: SealedPerson, tokens: Sequence[bytes], columns: Collection[str] | None = None
    ) -> list[Keys]:
        """``columns``: of the rows, where all have the same. A class of which they have none needs no key: it is empty."""
        there = {column.casefold() for column in columns} if columns is not None else self.columns
        classes = [name if any(one.casefold() in there for one in named) else None for name, named in person.classes]
        wanted = [(token, class_name) for token in tokens for class_name in classes if class_name is not None]
        keys = self.registry().keys(wanted, create=True)

        def held(token: bytes, class_name: str | None) -> tuple[bytes, bytes]:
            return (b"", b"") if class_name is None else (keys[token, class_name].key_id, keys[token, class_name].key)

        return [(token, [held(token, class_name) for class_name in classes]) for token in tokens]


def not_text(rows: DataFrame, column: str, hint: str, *, version: str = COMMIT_VERSION) -> RowRejected:
    """Bytes that are no text cannot be told apart in a registry of texts: two people would share one key."""
    from pyspark.sql import functions as F

    first = rows.agg(F.min(version)).collect()[0][0]
    return RowRejected(
        f"column {column!r} at version {first} holds bytes that are not UTF-8, and tells whose a row is",
        hint=hint,
        column=column,
        version=first,
    )


def with_keys(rows: DataFrame, value: Column, keys: Sequence[tuple[str, Keys]], name: str) -> DataFrame:
    """With a column of this name, the keys of whom ``value`` names; NULL where it names nobody."""
    schema = StructType([StructField("deltarelay_value", StringType()), StructField(name, _KEYS)])
    held = as_data(rows.sparkSession, [[one for one, _ in keys], [_as_told(theirs) for _, theirs in keys]], schema)
    return rows.join(held, value == held["deltarelay_value"], "left").drop("deltarelay_value")


def _as_told(keys: Keys) -> dict[str, Any]:
    token, theirs = keys
    return {"token": token, "keys": [{"key_id": key_id, "key": key} for key_id, key in theirs]}


def _before(withheld: Collection[int]) -> Column:
    from pyspark.sql import functions as F

    return F.col(COMMIT_VERSION).isin(*withheld) & F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE)

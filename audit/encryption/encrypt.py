"""Adds the keys of the people whom a window's rows name to the rows. The registry is asked once for each window.

The keys exist only while the window is written. They are data and part of no plan; ``spark.io.encryption.enabled`` encrypts
what Spark writes of them to local disks, in transit and in shuffles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from audit.encryption.column_groups import PersonColumns, keys_column
from audit.identifiers import stored_forms
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, UPDATE_PREIMAGE, quoted
from cdf.errors import ConfigError, RowRejected
from cdf.spark_versions import collect_arrow, is_valid_utf8

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from audit.encryption.key_registry import Registry

__all__ = ["ColumnEncryption", "PersonKeys", "invalid_utf8_error", "join_keys"]

PersonKeys: TypeAlias = "tuple[bytes, list[tuple[bytes, bytes]]]"
"""A person's token, and id and key for each of the classes."""


@dataclass(frozen=True, slots=True)
class ColumnEncryption:
    """The columns that are encrypted in the trail of a table. ``registry`` is called when keys are needed."""

    people: tuple[PersonColumns, ...]
    registry: Callable[[], Registry]

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns of all classes, case-folded."""
        return frozenset(name.casefold() for person in self.people for _, columns in person.classes for name in columns)

    def extend_schema(self, source: StructType) -> StructType:
        """The schema with the column that records the groups."""
        from pyspark.sql.types import StructField, StructType

        from audit.trail.column_history import GROUPS, SEALED

        return StructType([*source.fields, StructField(SEALED, GROUPS)])

    def find_problems(self, schema: StructType) -> list[str]:
        """Why rows of this schema cannot be encrypted."""
        from audit.trail.column_history import SEALED

        names = {name.casefold() for name in schema.names}
        problems = [
            f"column {person.column}, which names the person of a row, does not exist: nothing could be encrypted"
            for person in self.people
            if person.column.casefold() not in names
        ]
        if SEALED in names:
            problems.append(f"a column is called {SEALED}, a name that is reserved for encrypted columns")
        return problems

    def add_empty_keys(self, feed: DataFrame) -> DataFrame:
        """Add the key columns without keys: nothing is encrypted."""
        from pyspark.sql import functions as F

        return feed.select(
            "*", *(F.lit(None).cast(_keys_type()).alias(keys_column(at)) for at in range(len(self.people)))
        )

    def add_keys(self, feed: DataFrame, withheld: Collection[int]) -> DataFrame:
        """Add a ``keys_column`` for each person: NULL where the row does not name the person. New people get keys.

        ``withheld``: versions whose values before the change are not stored. A person named by these alone gets no keys: the
        registry has just destroyed them. Raises ConfigError where a column that names the person of a row is missing.
        """
        if problems := self.find_problems(feed.schema):
            raise ConfigError(
                "; ".join(problems), hint="restore the column, or remove `classes` from the configuration"
            )
        for at, person in enumerate(self.people):
            feed = self._add_keys_of(feed, keys_column(at), person, withheld)
        return feed

    def _add_keys_of(self, feed: DataFrame, name: str, person: PersonColumns, withheld: Collection[int]) -> DataFrame:

        column = next(column for column in feed.columns if column.casefold() == person.column.casefold())
        value = quoted(column).cast("string")
        asked = feed.where(value.isNotNull())
        if withheld:
            asked = asked.where(~_is_before_image(withheld))
        found, values = collect_arrow(asked.select(value).distinct()).column(0), None
        with suppress(UnicodeDecodeError):
            values = found.to_pylist()
        if values is None:
            hint = "correct the value at the source and continue after that version, or start a new trail"
            raise invalid_utf8_error(asked.where(~is_valid_utf8(value)), column, hint)
        return join_keys(feed, value, self.get_keys_by_value(person, values, feed.columns), name)

    def get_keys_by_value(
        self, person: PersonColumns, values: Sequence[str], columns: Collection[str] | None = None
    ) -> list[tuple[str, PersonKeys]]:
        """Keys for each value of the person's column, created for new people."""
        people = [[(person.identifier, form) for form in stored_forms(value, person.spelling)] for value in values]
        # A person whom an earlier release stored under another form keeps the token
        tokens = self.registry().find_tokens(person.subject, people)
        if new := {forms[0]: None for forms, token in zip(people, tokens, strict=True) if token is None}:
            created = self.registry().find_or_create_tokens(person.subject, [[form] for form in new])
            of_new = dict(zip(new, created, strict=True))
            tokens = [of_new[forms[0]] if token is None else token for forms, token in zip(people, tokens, strict=True)]
        keys = self.get_keys_by_token(person, [token for token in tokens if token is not None], columns)
        return list(zip(values, keys, strict=True))

    def get_keys_by_token(
        self, person: PersonColumns, tokens: Sequence[bytes], columns: Collection[str] | None = None
    ) -> list[PersonKeys]:
        """``columns``: those of the rows, if all rows have the same. A class without any of them gets an empty key."""
        existing = {column.casefold() for column in columns} if columns is not None else self.columns
        classes = [
            name if any(column.casefold() in existing for column in own) else None for name, own in person.classes
        ]
        wanted = [(token, class_name) for token in tokens for class_name in classes if class_name is not None]
        keys = self.registry().find_or_create_keys(wanted)

        def key_of(token: bytes, class_name: str | None) -> tuple[bytes, bytes]:
            return (b"", b"") if class_name is None else (keys[token, class_name].key_id, keys[token, class_name].key)

        return [(token, [key_of(token, class_name) for class_name in classes]) for token in tokens]


def invalid_utf8_error(rows: DataFrame, column: str, hint: str, *, version: str = COMMIT_VERSION) -> RowRejected:
    """The registry stores text. Invalid bytes could make two people share one key."""
    from pyspark.sql import functions as F

    first = rows.agg(F.min(version)).collect()[0][0]
    return RowRejected(
        f"column {column!r} at version {first} holds bytes that are not UTF-8, and this column names the person of a row",
        hint=hint,
        column=column,
        version=first,
    )


def join_keys(rows: DataFrame, value: Column, keys: Sequence[tuple[str, PersonKeys]], name: str) -> DataFrame:
    """Add a column of this name with the keys of the person whom ``value`` names; NULL where it names no one."""
    from pyspark.sql.types import StructType

    from audit.encryption.keys_to_tasks import create_rows

    schema = StructType().add("deltarelay_value", "string").add(name, _keys_type())
    columns: list[list[Any]] = [[text for text, _ in keys], [_to_struct(person_keys) for _, person_keys in keys]]
    by_value = create_rows(rows.sparkSession, columns, schema)
    return rows.join(by_value, value == by_value["deltarelay_value"], "left").drop("deltarelay_value")


def _keys_type() -> StructType:
    from pyspark.sql.types import ArrayType, StructType

    key = StructType().add("key_id", "binary").add("key", "binary")
    return StructType().add("token", "binary").add("keys", ArrayType(key))


def _to_struct(person_keys: PersonKeys) -> dict[str, Any]:
    token, keys = person_keys
    return {"token": token, "keys": [{"key_id": key_id, "key": key} for key_id, key in keys]}


def _is_before_image(versions: Collection[int]) -> Column:
    from pyspark.sql import functions as F

    return F.col(COMMIT_VERSION).isin(*versions) & F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE)

"""The tables that a resolution reads, each at one version, and their columns by which rows belong to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.erasure.model import Link, PersonalTable, Subject
from cdf.errors import ConfigError
from cdf.spark_versions import is_variant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from cdf.source.table import ChangeFeed

__all__ = ["TablesAtVersions", "column_in"]


@dataclass(frozen=True, slots=True)
class TablesAtVersions:
    spark: SparkSession
    tables: Mapping[str, PersonalTable]
    """A linked table comes after the one that it leads to."""
    subjects: Mapping[str, Subject]
    feeds: Mapping[str, ChangeFeed]
    versions: Mapping[str, int]

    def people(self) -> Iterator[PersonalTable]:
        """Yield the tables, once for each person whom their rows name; those that links lead to first."""
        yield from self.tables.values()
        for one in self.tables.values():
            yield from one.others

    def read(self, table: str) -> DataFrame:
        return self.feeds[table].snapshot(self.versions[table])

    def schema(self, table: str) -> StructType:
        return self.feeds[table].log.metadata(self.versions[table]).schema

    def identifiers_in(self, one: PersonalTable, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Return (column, identifier), as the table and as the subject spell it."""
        found = ((column_in(columns, name), name) for name in self.subjects[one.subject].identifiers)
        return [(column, name) for column, name in found if column is not None]

    def match_columns(self, one: PersonalTable, columns: Sequence[str]) -> list[str]:
        """Return the columns by which a row is matched with a person."""
        if isinstance(one.path, Link):
            column = column_in(columns, one.path.column)
            return [] if column is None else [column]
        return [column for column, _ in self.identifiers_in(one, columns)]

    def identifier_of(self, link: Link) -> str | None:
        """Return the identifier that is the column which the link leads to; None where it leads to another column."""
        target = self.tables[link.table]
        if isinstance(target.path, Link):
            return None
        return column_in(self.subjects[target.subject].identifiers, link.other)

    def check(self) -> None:
        """Raises ConfigError for columns that do not exist, or cannot be compared with an identifier."""
        for one in self.people():
            self._check(one)

    def _check(self, one: PersonalTable) -> None:
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(one.path, Link):
            if one.path.table not in self.tables:
                raise ConfigError(f"{one.table} leads to {one.path.table}, which is not among the tables")
            self._check_column(one, one.table, one.path.column)
            self._check_column(one, one.path.table, one.path.other)
        else:
            self._check_column(one, one.table, one.path)
            if column_in(self.subjects[one.subject].identifiers, one.path) is None:
                raise ConfigError(
                    f"`identified_by` of {one.table} names {one.path}, which is not an identifier of {one.subject}",
                    hint=f"add it to `erasure.subjects.{one.subject}.identifiers`",
                )
        schema = self.schema(one.table)
        for column in self.match_columns(one, schema.names):
            if isinstance(kind := schema[column].dataType, ArrayType | MapType | StructType) or is_variant(kind):
                raise ConfigError(
                    f"{one.table}.{column} has a nested type, so its values cannot be compared with an identifier",
                    hint="rename the column, or give the identifier another name",
                )

    def _check_column(self, one: PersonalTable, table: str, name: str) -> None:
        if column_in(self.schema(table).names, name) is None:
            raise ConfigError(
                f"{table} has no column {name}, by which rows of {one.table} are to be found",
                hint=f"in `erasure.tables`, write `identified_by` of {one.table} with the names of existing columns",
            )


def column_in(columns: Iterable[str], name: str) -> str | None:
    """Return the column as the columns spell it: Spark ignores case."""
    return next((column for column in columns if column.lower() == name.lower()), None)

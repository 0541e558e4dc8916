"""Keyed sums of digests over the changes of each version, in the source and in the trail, to compare without sorting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audit.encryption.decrypt import decrypt_rows, find_encrypted_columns, find_lost_columns
from audit.errors import unreadable_trail
from audit.hashing.multiset_digest import Sums, digest_rows, sum_digests
from audit.queries.view import add_missing_columns
from audit.trail.column_history import SEALED, extend_columns, row_type
from audit.trail.tables import EVENTS, PAYLOAD
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, METADATA_COLUMNS, UPDATE_PREIMAGE, quoted
from cdf.changes.window import Window
from cdf.errors import CdfError
from cdf.sink.guard import erasing_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from audit.audit_trail import Trail
    from audit.encryption.key_registry import States
    from audit.reconciliation.recorded import RecordedCommits
    from audit.trail.tables import TrailTables
    from cdf.changes.window import Snapshot

__all__ = ["RowSums", "translate_errors"]


@dataclass(frozen=True, slots=True)
class RowSums:
    """``events`` and ``payload`` of the trail at one moment."""

    path: str
    ledger: RecordedCommits
    events: DataFrame
    payload: DataFrame
    states: States | None
    encrypted: set[str]
    """Case-folded names of the columns that are encrypted in any row."""
    hidden: set[str]
    """Those of ``encrypted`` that cannot be compared, because not all of their keys are available."""
    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    """Random for each comparison: with the key, different rows could be made to have equal sums."""

    @classmethod
    def read(cls, trail: Trail, tables: TrailTables, ledger: RecordedCommits) -> RowSums:
        events, payload = tables.read_current(EVENTS), add_missing_columns(trail, tables.read_current(PAYLOAD))
        encrypted, states = find_encrypted_columns(payload), trail.states
        hidden = encrypted if states is None or not encrypted else find_lost_columns(payload, states)
        return cls(tables.path, ledger, events, payload, states, encrypted, hidden)

    def sum_source(
        self, read: Callable[[], DataFrame], schema: StructType, source: Window | Snapshot
    ) -> Mapping[int, Sums]:
        """→ by version, the sums over the rows that ``read`` returns."""
        from pyspark.sql import functions as F

        columns = [column for column in extend_columns((), schema) if column.name.casefold() not in self.hidden]
        plain = row_type(columns, stored=False)
        try:
            values = (quoted(name).alias(f"value_{at}") for at, name in enumerate(plain.names))
            feed = read()
            if isinstance(source, Window):
                key = [name for name in source.key if name.casefold() not in self.encrypted]
                feed = _withhold_images(feed, erasing_versions(source.commits), key)
            rows = feed.select(*values, F.col(CHANGE_TYPE).alias("change_type"), F.col(COMMIT_VERSION).alias("version"))
            return sum_digests(digest_rows(rows, plain, self.key))["rows"]
        except Exception as error:
            raise source.failure(error) from error

    def sum_trail(self, first: int, last: int, *, baseline: bool) -> tuple[Mapping[int, Sums], Mapping[int, Sums]]:
        """→ by version, the sums over the events, and over the values that are stored."""
        from pyspark.sql import functions as F

        ignored = {*self.hidden, SEALED}
        columns = [column for column in self.ledger.columns_at(last) if column.name.casefold() not in ignored]
        within = F.col("version").between(first, last) & (F.col("baseline") == baseline)
        none = (F.lit(0).cast("decimal(38, 0)").alias(half) for half in ("high", "low"))
        counted = self.events.where(within).select(
            F.lit("events").alias("side"), "version", "change_type", F.lit(1).cast("long").alias("count"), *none
        )
        fields = (F.col("row").getField(column.stored).alias(f"value_{at}") for at, column in enumerate(columns))
        with translate_errors(self.path, f"version {first} to {last}"):
            values = self._decrypt(self.payload.where(within)).select(*fields, "change_type", "version")
            sides = sum_digests(digest_rows(values, row_type(columns, stored=False), self.key).unionByName(counted))
        return sides["events"], sides["rows"]

    def _decrypt(self, payload: DataFrame) -> DataFrame:
        if self.states is None or not self.encrypted:
            return payload
        return decrypt_rows(payload, self.ledger.columns, self.states)


@contextmanager
def translate_errors(path: str, step: str) -> Iterator[None]:
    """Raise errors of Spark while the trail is read as VerificationError."""
    try:
        yield
    except CdfError:
        raise
    except Exception as error:
        raise unreadable_trail(path, error, step) from error


def _withhold_images(feed: DataFrame, withheld: frozenset[int], key: Sequence[str]) -> DataFrame:
    """Of commits that erased a person, the trail has only the key of the rows before the change."""
    from pyspark.sql import functions as F

    if not withheld:
        return feed
    before = F.col(COMMIT_VERSION).isin(*withheld) & F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE)
    values = [name for name in feed.columns if name not in (*key, *METADATA_COLUMNS)]
    return feed.select(
        *(F.when(~before, quoted(name)).alias(name) if name in values else quoted(name) for name in feed.columns)
    )

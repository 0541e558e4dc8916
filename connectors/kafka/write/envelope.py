"""The rows of a change feed as Kafka events: one shuffle and one sort in Spark, and one pass in Python.

Spark converts each image of a row to JSON before the shuffle. The shuffle brings all keys of a lane together. The sort by
version, key, removes before puts, and the row's text gives each lane the same order in every computation of the same rows,
so that a writer can continue in the middle. The feed does not pair the images of an update: in this order, the preimage and
the postimage of a key in one version are neighbours, and they are paired in Python (``event_assembler``).

    ====================================  ======================  ==========================
    rows of one key and version           ``debezium``            ``row``
    ====================================  ======================  ==========================
    ``delete``                            d, tombstone            tombstone
    preimage and postimage                u                       the row
    preimage alone: the key was changed   d, tombstone            tombstone
    postimage alone: a key change to it   c                       the row
    ``insert``                            c                       the row
    ====================================  ======================  ==========================

A table with duplicate keys is not an error here. The preimages and the postimages of a key are each ordered by their JSON,
the last preimage is paired with the first postimage, and the others remain unpaired. ``again`` counts such changes: within
one version, a put after a put or a remove before a remove of the same key; in a snapshot, each row of a key but the first.
For a net effect it is ``CONFLICTS``, which also counts across the versions of the window. Earlier windows, and in a history
earlier versions, are not taken into account.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from connectors.kafka.event_format import EventFormat, check_schema
from connectors.kafka.write.event_builder import EventBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EventFormat", "check_schema", "snapshot_to_envelope", "to_envelope"]


def to_envelope(
    changes: DataFrame,
    *,
    key: Sequence[str],
    table: str,
    table_id: str,
    pipeline: str,
    format: EventFormat,
    net: bool = False,
    lanes: int = 1,
    withheld: Collection[int] = (),
) -> DataFrame:
    """Return the events of the feed's rows; with ``net``, of a net effect (``Window.net()``), where ``before`` is null.

    ``withheld``: versions of commits that erased a person. Their events have no ``before``, because the feed has the erased
    row there.

    Columns: ``lane``, ``key``, ``value`` (null: a tombstone), ``op`` (c, u, d, r, or t for a tombstone), ``version``,
    ``timestamp``, ``change_type``, ``again`` and ``event_id``. Partition n has exactly the events of lane n, and their order
    does not depend on the order of ``changes``: by version, then key, then removes before puts.

    The lane of a key depends only on its value and the number of lanes. The event id is the MD5 of table id, version, op,
    key and value: the same in every window, retry and rewind. Two events have the same id only if all of these are equal, as
    when a table without a real key contains a row twice.

    A null in the key, and a value that JSON cannot hold, make the job that computes the events fail; ``Window.failure`` and
    ``connectors.kafka.types.find_rejection`` translate that failure. deltarelay must be installed on the executors.
    """
    builder = EventBuilder(changes, key, table, table_id, pipeline, format, lanes)
    return (builder.build_net() if net else builder.build_changes(withheld)).build_events()


def snapshot_to_envelope(
    rows: DataFrame,
    *,
    key: Sequence[str],
    table: str,
    table_id: str,
    pipeline: str,
    version: int,
    timestamp: dt.datetime | None,
    format: EventFormat,
    lanes: int = 1,
) -> DataFrame:
    """Return every row of the table at ``version`` as an ``r`` event; columns and order are those of ``to_envelope``."""
    builder = EventBuilder(rows, key, table, table_id, pipeline, format, lanes)
    return builder.build_snapshot(version, timestamp).build_events()

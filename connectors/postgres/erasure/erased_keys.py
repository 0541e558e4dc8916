"""The keys under which a person is erased, staged in a table of ours.

They are the keys that the source has erased, and the keys of retained rows that belong to the person by their content
(``ErasureTask.catch``) although the source lost them earlier.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from audit.errors import raise_without_context
from cdf.changes.canonical import key_digest, plain_decimals
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, quoted
from cdf.source.table import ChangeFeed
from cdf.spark_versions import collect_arrow
from connectors.postgres.erasure.retained_rows import find_retained_condition, read_retained_rows
from connectors.postgres.errors import StagingFailed, error_of_state
from connectors.postgres.staging import adbc_copy, storability
from connectors.postgres.staging.columns import COPY_ROWS
from connectors.postgres.target.ddl import create_staging
from connectors.postgres.types import staging_type, wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from audit.erasure.sink_contract import ErasureTask
    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.erasure.target import ErasureTarget

__all__ = ["DIGEST", "GONE", "stage_keys"]

DIGEST, GONE = "digest", "gone"
"""Columns of a staged key: its digest, as a dead letter has it; whether the source has no data of the person under it."""
_GONE_MARK = COMMIT_VERSION
"""Name of ``GONE`` in a frame: no column of a source or target can have that name."""


def stage_keys(
    target: ErasureTarget, task: ErasureTask, found: Mapping[str, ColumnType], version: int
) -> tuple[StructType, int]:
    """Stage the keys with the types in which a key is staged. Return their schema, with the target's names, and their
    number."""
    session = target.session
    keys = reduce(lambda one, other: one.unionByName(other), _retained_keys(target, task, found), task.keys())
    keys = _with_gone(keys, target, task, found, version).distinct()
    schema = keys.drop(_GONE_MARK).schema
    name = session.own_name("stage")
    with session.errors("creating the table for keys"):
        columns = [(f"c{number}", str(staging_type(field.dataType))) for number, field in enumerate(schema.fields)]
        session.main().execute(
            create_staging(session.own_table("stage"), [*columns, (DIGEST, "text"), (GONE, "boolean")])
        )
    table = collect_arrow(_in_wire_form(keys, schema))
    batches = table.combine_chunks().to_batches(COPY_ROWS)
    if not batches:
        return schema, 0
    tally = adbc_copy.Tally([(column, False) for column in table.column_names])
    failure = None
    try:
        with adbc_copy.bulk_connection(session.dsn) as bulk:
            adbc_copy.run_interruptibly(
                lambda: adbc_copy.copy_batches(bulk, name, batches[0], iter(batches[1:]), tally),
                cancel=bulk.adbc_cancel,
            )
    except StagingFailed as error:
        failure = error_of_state(error.sqlstate, "copying keys")
    if failure is not None:
        raise_without_context(failure)
    return schema, table.num_rows


def _with_gone(
    keys: DataFrame, target: ErasureTarget, task: ErasureTask, found: Mapping[str, ColumnType], version: int
) -> DataFrame:
    """Rename the keys to the target's names, and add whether the source has lost their rows, or everything personal in
    them."""
    from pyspark.sql import functions as F

    present = ChangeFeed(keys.sparkSession, task.table).snapshot(version)
    personal = [name for name in target.personal_columns(task, found) if name in present.columns]
    if task.on_erase == "nullify" and personal:
        present = present.where(reduce(operator.or_, (quoted(name).isNotNull() for name in personal)))
    present = present.select(*map(quoted, task.key), F.lit(True).alias(_GONE_MARK))
    return keys.join(present, list(task.key), "left").select(
        *(quoted(name).alias(target.columns.target_name(name)) for name in task.key),
        F.col(_GONE_MARK).isNull().alias(_GONE_MARK),
    )


def _in_wire_form(keys: DataFrame, schema: StructType) -> DataFrame:
    """Convert the keys to their staged form. A key that PostgreSQL cannot store is in no row of the target: only its digest
    is staged, for its dead letter."""
    from pyspark.sql import functions as F

    names = tuple(schema.fieldNames())
    with plain_decimals(keys.sparkSession):
        marked = keys.withColumn(CHANGE_TYPE, F.lit(DELETE))
        is_storable = storability.unstorable_reason(schema, names).isNull()
        return marked.select(
            *(F.when(is_storable, wire(f.name, f.dataType)).alias(f"c{n}") for n, f in enumerate(schema.fields)),
            key_digest(schema, names).alias(DIGEST),
            F.col(_GONE_MARK).alias(GONE),
        )


def _retained_keys(target: ErasureTarget, task: ErasureTask, found: Mapping[str, ColumnType]) -> list[DataFrame]:
    """Return the keys of retained rows that are the data subjects' by their content: the source may have lost them long
    ago."""
    session = target.session
    with session.errors("looking for retained rows"):
        connection = session.main()
        condition = find_retained_condition(connection, target, found)
    if condition is None:
        return []
    spark = task.keys().sparkSession
    schema = ChangeFeed(spark, task.table).snapshot().schema
    frames = []
    with session.errors("reading the retained rows"), connection.transaction():
        connection.execute("set local row_security = off")
        for rows in read_retained_rows(connection, target, found, schema, spark, where=condition):
            keys = task.catch(rows).select(*map(quoted, task.key)).collect()
            types = rows.select(*map(quoted, task.key)).schema
            if keys:
                frames.append(spark.createDataFrame(spark.sparkContext.parallelize(keys), types))
    return frames

"""Rows in the form in which they are copied: net effects for staging, plain rows for loads."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.changes.canonical import plain_decimals
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    TRANSIENT,
    UPDATE,
    UPDATE_POSTIMAGE,
    quoted,
)
from cdf.changes.few_rows import few_rows
from cdf.changes.in_memory import InMemoryWindow
from cdf.changes.keys import key_violation
from cdf.changes.net_arrow import KeyRefused, net_on_driver
from cdf.source.direct_reader import ManyRows, read_directly
from connectors.postgres.errors import sqlstate_of_task
from connectors.postgres.staging import in_memory, storability
from connectors.postgres.staging.columns import (
    CODES,
    OPERATION,
    OPTIONAL,
    REJECT,
    REJECT_DIGEST,
    REJECT_KEY,
    REJECT_ROW,
    TIMESTAMP,
    VERSION,
    StagingOptions,
    staging_columns,
)
from connectors.postgres.types import wire

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.window import Window

__all__ = ["NetForm", "wire_changes", "wire_net", "wire_net_on_driver", "wire_rows"]

log = logging.getLogger("deltarelay.postgres")


def wire_net(net: DataFrame, schema: StructType, key: tuple[str, ...], options: StagingOptions) -> DataFrame:
    """A net effect in the form in which it is copied. A delete carries its key only, a marked change no values. A transient
    key that PostgreSQL cannot store is left out, because no target can hold it."""
    from pyspark.sql import functions as F

    kind = F.col(CHANGE_TYPE)
    code = F.when(kind == INSERT, CODES[INSERT]).when(kind == UPDATE, CODES[UPDATE]).when(kind == DELETE, CODES[DELETE])
    code = code.when(kind == TRANSIENT, CODES[TRANSIENT])
    if options.transients and not options.rejects:
        net = net.where((kind != TRANSIENT) | storability.unstorable_reason(schema, key).isNull())
    reason = storability.unstorable_reason(schema, key) if options.rejects else None
    columns = []
    for number, field in enumerate(schema.fields):
        value = wire(field.name, field.dataType)
        if reason is not None:
            value = F.when(reason.isNull(), value)
        columns.append((value if field.name in key else F.when(kind.isin(INSERT, UPDATE), value)).alias(f"c{number}"))
    own = _optional_columns(schema, key, options, reason)
    with plain_decimals(net.sparkSession):
        return net.select(code.cast("smallint").alias(OPERATION), *own, *columns, quoted(CONFLICTS))


def _optional_columns(
    schema: StructType, key: tuple[str, ...], options: StagingOptions, reason: Column | None
) -> list[Column]:
    """``reason``: of ``storability``, where rows that cannot be stored are marked."""
    from pyspark.sql import functions as F

    own: list[Column] = []
    if options.commit:
        own += [quoted(COMMIT_VERSION).alias(VERSION), quoted(COMMIT_TIMESTAMP).cast("timestamp").alias(TIMESTAMP)]
    if reason is not None:
        own.append(reason.alias(REJECT))
        details = storability.unstorable_details(schema, key, row=options.reject_rows)
        for name, value in zip((REJECT_KEY, REJECT_DIGEST, REJECT_ROW), details, strict=True):
            own.append(F.when(reason.isNotNull(), value).alias(name))
    return own


def wire_changes(window: Window, options: StagingOptions) -> DataFrame:
    """The feed's rows with the columns of ``wire_net``, before their net effect is computed."""
    from pyspark.sql import functions as F

    schema, key = window.schema, window.key
    put = quoted(CHANGE_TYPE).isin(INSERT, UPDATE_POSTIMAGE)
    reason = storability.unstorable_reason(schema, key) if options.rejects else None
    columns = []
    for number, field in enumerate(schema.fields):
        value = wire(field.name, field.dataType)
        if field.name in key:
            # A key keeps its value until the net effect is computed
            value = value if reason is None else quoted(field.name)
        else:
            # Of a removed row only the key is used: its other values need not be shuffled and sorted
            value = F.when(put if reason is None else put & reason.isNull(), value)
        columns.append(value.alias(f"c{number}"))
    own = _optional_columns(schema, key, options, reason)
    feed = window.read()
    with plain_decimals(feed.sparkSession):
        return feed.select(quoted(CHANGE_TYPE), quoted(COMMIT_VERSION), *own, *columns)


def wire_net_on_driver(window: Window, options: StagingOptions) -> pa.Table | None:
    """``wire_net`` of a small window, in memory. None where it has too many rows, or where a row cannot be copied; that row
    may be superseded within the window, so the tasks must decide."""
    if isinstance(window, InMemoryWindow):
        net = window.collect_net(transients=options.transients)
        return in_memory.wire_net(net, window.schema, window.key, options, CODES)
    form = NetForm.of(window, options)
    try:
        # Spark marks the rows that cannot be stored
        found = None if options.rejects else read_directly(window, times=options.commit)
    except ManyRows:
        return None
    if found is not None:
        net = _compute_net(window, form.from_feed(found.rows()), form, options)
        return form.to_staged(form.drop_removed_values(net))
    try:
        rows = few_rows(wire_changes(window, options))
    except Exception as error:
        if sqlstate_of_task(error) is None:
            raise
        log.info("Spark tasks stage a small window", extra={"table": window.table})
        return None
    return None if rows is None else form.to_staged(_compute_net(window, rows, form, options))


def _compute_net(window: Window, rows: pa.Table, form: NetForm, options: StagingOptions) -> pa.Table:
    window.refuse_missing_images(rows)
    try:
        return net_on_driver(rows, form.key, transients=options.transients)
    except KeyRefused as refused:
        raise key_violation(refused.reason, refused.version, table=window.table, key=window.key) from refused


@dataclass(frozen=True, slots=True)
class NetForm:
    """What a task needs in order to turn a net effect into staged rows. Column names are those of staging."""

    key: tuple[str, ...]
    own: tuple[str, ...]
    values: tuple[str, ...]
    rejects: bool

    @classmethod
    def of(cls, window: Window, options: StagingOptions) -> NetForm:
        numbered = [(f"c{number}", field.name in window.key) for number, field in enumerate(window.schema.fields)]
        return cls(
            key=tuple(name for name, is_key in numbered if is_key),
            own=tuple(name for name, _ in staging_columns(window.schema, options) if name in OPTIONAL),
            values=tuple(name for name, _ in numbered),
            rejects=options.rejects,
        )

    def from_feed(self, feed: pa.Table) -> pa.Table:
        """The feed's rows with the columns of ``wire_changes``, but with the values of removed rows."""
        import pyarrow as pa

        own = [TIMESTAMP] if TIMESTAMP in self.own else []
        rows = feed.rename_columns([*self.values, CHANGE_TYPE, COMMIT_VERSION, *own])
        if VERSION in self.own:
            rows = rows.append_column(VERSION, rows[COMMIT_VERSION])
        for number, kind in enumerate(rows.schema.types):
            if pa.types.is_int8(kind):  # PostgreSQL has no integer of one byte
                rows = rows.set_column(number, rows.column_names[number], rows.column(number).cast(pa.int16()))
        return rows

    def drop_removed_values(self, net: pa.Table) -> pa.Table:
        """Of a removed row only the key is copied."""
        import pyarrow as pa
        import pyarrow.compute as pc

        put = pc.is_in(net[CHANGE_TYPE], value_set=pa.array([INSERT, UPDATE]))
        if pc.all(put).as_py():
            return net
        for number, name in enumerate(net.column_names):
            if name in self.values and name not in self.key:
                value = net[name]
                net = net.set_column(number, name, pc.if_else(put, value, pa.scalar(None, value.type)))
        return net

    def to_staged(self, net: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = net[CHANGE_TYPE]
        codes = pa.array(list(CODES.values()), pa.int16())
        code = pc.take(codes, pc.index_in(kind, value_set=pa.array(list(CODES), kind.type)))
        is_marked = pc.is_valid(net[REJECT]) if self.rejects else None
        arrays: dict[str, Any] = {OPERATION: code}
        arrays |= {name: net[name] for name in self.own}
        for name in self.values:
            value, left_out = net[name], is_marked if name in self.key else None
            arrays[name] = value if left_out is None else pc.if_else(left_out, pa.scalar(None, value.type), value)
        arrays[CONFLICTS] = net[CONFLICTS]
        return pa.Table.from_pydict(arrays)


def wire_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Plain rows in the form in which they are copied. Numbered as well: mapInArrow fails on dots and backticks in names."""
    return rows.select(
        *(wire(field.name, field.dataType).alias(f"c{number}") for number, field in enumerate(schema.fields))
    )

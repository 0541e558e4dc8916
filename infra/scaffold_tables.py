"""``deltarelay init 'FOLDER/*'``: one configuration file for all tables of a folder, short however many tables there are.

The most frequent key is the one of the pipeline; only tables with another key are listed. A table whose key is unknown is
listed with an empty key, which `validate` refuses: no table is left out silently, and none gets the key of another.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cdf.errors import CdfError, ConfigError, TableNotFound
from cdf.result import Result
from infra.config.table_patterns import (
    check_pattern,
    has_wildcard,
    is_catalog_pattern,
    list_tables,
    split_address,
    table_name,
)
from infra.diagnostics.delta_table import open_source
from infra.key_proposal import CHECKED_ROWS, propose_key
from infra.s3.address import is_s3, normalize_address
from infra.s3.model import Storage
from infra.scaffold import (
    CONNECTION,
    FURTHER_SETTINGS,
    HEAD,
    STORAGE,
    VARIABLE,
    relative_to,
    to_comment,
    to_pipeline_name,
    to_yaml_scalar,
)

__all__ = ["ProposedTable", "TablesScaffold", "find_tables_below", "is_pattern", "propose_tables", "scaffold_tables"]

_THREADS = 4
"""Tables that are opened and checked in parallel: each check may hold the column of a million rows in memory."""
_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ProposedTable(Result):
    """A table and its proposed key. A wrong key that was not checked stops the first load or window with duplicates."""

    table: str
    key: tuple[str, ...]
    """Empty: unknown; a user must name it."""
    key_unique: bool | None
    """True: checked against every row; false: no likely column is unique; null: not checked."""
    feed_on: bool | None
    note: str
    """Why the key is unknown, or was not checked; empty if it was checked."""


@dataclass(frozen=True, slots=True)
class TablesScaffold(Result):
    file: str
    pipeline: str
    pattern: str
    key: tuple[str, ...]
    """The key of all tables without an own one; empty if no key of any table is known."""
    tables: tuple[ProposedTable, ...]
    excluded: tuple[str, ...]
    """Folders whose names cannot be part of a pipeline's name."""
    variable: str
    """The environment variable to set before the file can be used."""

    @property
    def without_key(self) -> list[str]:
        return [one.table for one in self.tables if not one.key]

    @property
    def not_checked(self) -> list[str]:
        return [one.table for one in self.tables if one.key and one.key_unique is None]


def is_pattern(table: str) -> bool:
    """Whether the argument of ``init`` is a pattern: an existing folder may have a wildcard in its name."""
    return has_wildcard(table) and ("://" in table or not Path(table).is_dir())


def find_tables_below(address: str) -> list[str]:
    """The Delta tables in a folder that is not a table itself; empty where the folder cannot be listed."""
    try:
        return list_tables(f"{address.rstrip('/')}/*", Storage())
    except CdfError:
        return []


def propose_tables(
    pattern: str, report_progress: Callable[[int, int], None]
) -> tuple[str, list[ProposedTable], list[str]]:
    """Open all tables of a pattern, and propose and check a key for each. → the pattern, the tables, folders to exclude

    ``report_progress`` gets the number of finished tables and of all, in the calling thread. Raises ConfigError where the
    pattern matches nothing or is invalid, and the error of S3 if it does not answer.
    """
    if is_catalog_pattern(pattern):
        raise ConfigError(
            f"the keys of the tables in the catalog schema {split_address(pattern)[0]} cannot be proposed without Spark",
            hint=f"name their folder, such as 's3a://lake/sales/*'; or write `tables: {pattern}` and the keys into a file",
        )
    try:
        pattern = check_pattern(normalize_address(pattern if "/" in pattern else f"./{pattern}"))
    except ValueError as error:
        raise ConfigError(f"the pattern {error}", hint="quote it for the shell: 's3a://lake/sales/*'") from None
    found = list_tables(pattern, Storage())
    if not found:
        hint = "a Delta table is a folder that contains _delta_log, and its name must match"
        raise TableNotFound(f"no Delta table matches {pattern}", hint=hint)
    addresses = [address for address in found if _has_usable_name(address)]
    tables = []
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for table in pool.map(_propose, addresses):
            tables.append(table)
            report_progress(len(tables), len(addresses))
    finally:  # after an error or Ctrl-C the remaining tables are not read
        pool.shutdown(cancel_futures=True)
    return pattern, tables, [split_address(address)[1] for address in found if address not in addresses]


def _has_usable_name(address: str) -> bool:
    try:
        table_name(address)
    except ValueError:
        return False
    return True


def _propose(address: str) -> ProposedTable:
    name = split_address(address)[1]
    try:
        table = open_source(address)
    except CdfError as error:
        if error.transient:
            raise
        # another table's key must not be applied, and Spark may be able to read it
        return ProposedTable(name, (), None, None, f"it cannot be read without Spark: {type(error).code}")
    proposal = propose_key(table, to_pipeline_name(address))
    if not proposal.is_likely:
        return ProposedTable(name, (), None, table.feed_on, "no column looks like a key")
    if proposal.unique is False:
        note = f"{proposal.columns[0]} does not identify its {proposal.rows:,} rows, nor does any other likely column"
        return ProposedTable(name, (), False, table.feed_on, note)
    note = "" if proposal.unique else "it has no rows" if proposal.rows == 0 else f"more than {CHECKED_ROWS:,} rows"
    return ProposedTable(name, proposal.columns, proposal.unique, table.feed_on, note)


def scaffold_tables(
    pattern: str, tables: Sequence[ProposedTable], excluded: Sequence[str], *, to: Path
) -> tuple[TablesScaffold, str]:
    """The settings and the text of a file at ``to``. Writes nothing."""
    folder = pattern.rstrip("/").rpartition("/")[0]
    keys = Counter(one.key for one in tables if one.key)
    # of keys that are equally frequent the first by name, so that two calls write the same file
    key = min(keys, key=lambda one: (-keys[one], one), default=())
    made = TablesScaffold(
        file=str(to),
        pipeline=to_pipeline_name(folder.removeprefix("./") or "tables"),
        pattern=relative_to(pattern, to.parent),
        key=key,
        tables=tuple(tables),
        excluded=tuple(excluded),
        variable=VARIABLE,
    )
    target = '"public.{name}"' if _are_identifiers([one.table for one in tables]) else "'public.\"{name}\"'"
    source = "\n".join([*_describe_key(made, keys[key]), *_list_excluded(made), *_list_overrides(made)])
    text = _TEMPLATE.format(
        head=HEAD,
        connection=CONNECTION.format(variable=VARIABLE),
        pipeline=made.pipeline,
        pattern=to_yaml_scalar(made.pattern),
        source=source,
        target=target,
        further=FURTHER_SETTINGS,
        storage=STORAGE if is_s3(pattern) else "",
    )
    return made, text


def _describe_key(made: TablesScaffold, count: int) -> list[str]:
    key = ", ".join(map(to_yaml_scalar, made.key))
    if not key:
        lines = ["The key of all tables: NO LIKELY KEY WAS FOUND IN ANY TABLE. Name the columns that identify a row."]
        return [*_comment(lines[0]), "      key: []"]
    text = (
        f"What identifies a row of every table that is not listed under `overrides` ({count} now, and new ones): columns "
        "that are never null and unique together. A PROPOSAL by name; unique and never null in every row where checked."
    )
    lines = _comment(text)
    if made.not_checked:
        lines += _comment(f"NOT CHECKED, because {_list_reasons(made)}; please check:")
        lines += _comment(", ".join(map(to_comment, made.not_checked)), indent="  ")
    return [*lines, f"      key: [{key}]"]


def _list_reasons(made: TablesScaffold) -> str:
    return " or ".join(sorted({one.note for one in made.tables if one.table in made.not_checked}))


def _list_excluded(made: TablesScaffold) -> list[str]:
    lines = _comment("Tables to leave out: names, or patterns of names.")
    if not made.excluded:
        return [*lines, "      # exclude: [tmp_*]"]
    lines += _comment("The names of these folders cannot be part of a pipeline's name: rename them, or use `table`.")
    return [*lines, f"      exclude: [{', '.join(map(to_yaml_scalar, made.excluded))}]"]


def _list_overrides(made: TablesScaffold) -> list[str]:
    """One line for each table that differs; those that need a user's decision first."""
    own = [one for one in made.tables if made.key and one.key != made.key]
    lines = _comment("Tables that differ: key, start, sink, window.")
    if not own:
        return [*lines, "      # overrides:", "      #   TABLE: {key: [COLUMN]}"]
    lines += ["      overrides:"]
    for one in sorted(own, key=lambda one: (bool(one.key), one.table)):
        key = ", ".join(map(to_yaml_scalar, one.key))
        comment = "  # PLEASE CHECK: unique together in the rows of now" if len(one.key) > 1 else ""
        if not one.key:
            comment = f"  # NAME THE KEY, or move the table to exclude: {to_comment(one.note)}"
        lines.append(f"        {_to_yaml_key(one.table)}: {{key: [{key}]}}{comment}")
    return lines


def _comment(text: str, indent: str = "") -> list[str]:
    return [f"      # {indent}{line}" for line in textwrap.wrap(text, 110, break_long_words=False)]


def _are_identifiers(names: Iterable[str]) -> bool:
    """Whether PostgreSQL reads the names without quotes as different ones."""
    names = list(names)
    return all(map(_PLAIN_IDENTIFIER.fullmatch, names)) and len({name.lower() for name in names}) == len(names)


def _to_yaml_key(name: str) -> str:
    """``$`` has no meaning in keys."""
    return to_yaml_scalar(name).replace("$$", "$")


_TEMPLATE = """\
{head}
{connection}
pipelines:
  {pipeline}:
    source:
      # Each Delta table that matches is a separate pipeline: {pipeline}.TABLE
      tables: {pattern}
{source}
      # Where to begin while a target is empty: snapshot (the whole table now, then its changes), earliest (the oldest
      # available change), a version, or a timestamp with its time zone.
      start: snapshot
    sink:
      connection: warehouse
      # {{name}} is the name of the table's folder. Created where it is missing; an existing table must be empty.
      table: {target}
{further}{storage}"""

"""A first configuration file: made from a table where there is one, and full of comments.

The key is the one thing that cannot be read off a Delta table and that everything depends on. So the proposal says why it
was made, and it is held against the rows where there are few enough to look at.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdf.errors import ConfigError
from cdf.result import Result
from infra.diagnostics.delta_table import Column, SourceTable
from infra.s3.address import is_s3

__all__ = ["VARIABLE", "KeyProposal", "Scaffold", "propose_key", "scaffold", "write_new"]

VARIABLE = "WAREHOUSE_DSN"
"""The environment variable that the written file takes its secret from."""
CHECKED_ROWS = 1_000_000
"""Beyond so many rows the proposed key is not held against them: it would take a while, and memory."""

_KEY_TYPES = {"byte", "short", "integer", "long", "string"}
_MAX_CANDIDATES = 5
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_WORDS = {"true", "false", "null"}


@dataclass(frozen=True, slots=True)
class KeyProposal(Result):
    columns: tuple[str, ...]
    reason: str
    unique: bool | None
    """True, false: as the rows themselves show; None: not looked at."""
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Scaffold(Result):
    file: str
    pipeline: str
    table: str
    key: tuple[str, ...]
    key_unique: bool | None
    """True: checked against every row; false: it is not unique; null: not checked."""
    feed_on: bool | None
    columns: tuple[str, ...]
    variable: str
    """The environment variable to set before the file can be used."""


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def propose_key(table: SourceTable, name: str) -> KeyProposal:
    """The likeliest column by its name and type; of several the first that is unique, where that can be looked at."""
    candidates = list(dict.fromkeys(_list_key_candidates(table.columns, name)))[:_MAX_CANDIDATES]
    if not candidates:
        first = table.columns[0].name if table.columns else "id"
        return KeyProposal((first,), "no column looks like a key; this is the first one", None)
    column, reason = candidates[0]
    if not _is_small(table):
        return KeyProposal((column,), reason, None)
    rows = 0
    try:
        for column, reason in candidates:
            rows, unique = _check_uniqueness(table, column)
            if rows == 0:
                return KeyProposal((column,), reason, None, rows)
            if unique:
                return KeyProposal((column,), reason, True, rows)
    except Exception:  # a feature of the table that delta-rs cannot read: the proposal stands, unchecked
        return KeyProposal(candidates[0][:1], candidates[0][1], None)
    return KeyProposal(candidates[0][:1], candidates[0][1], False, rows)


def _list_key_candidates(columns: tuple[Column, ...], name: str) -> Iterator[tuple[str, str]]:
    fit = [column for column in columns if column.type in _KEY_TYPES]
    singular = name.lower().removesuffix("s")
    own = {
        f"{stem}{joint}{ending}" for stem in (name.lower(), singular) for joint in ("_", "") for ending in ("id", "key")
    }
    reasons = (
        ("it is called id", lambda column: column.name.lower() == "id"),
        ("it is named after the table", lambda column: column.name.lower() in own),
        ("it is called a key or a uuid", lambda column: column.name.lower() in {"key", "uuid", "guid", "pk"}),
        ("its name ends in id", lambda column: re.search(r"(_id|Id|ID)$", column.name) is not None),
        ("it is a NOT NULL column of whole numbers or text", lambda column: not column.nullable),
    )
    seen: set[str] = set()
    for reason, fits in reasons:
        for column in fit:
            if fits(column) and column.name not in seen:
                seen.add(column.name)
                yield column.name, reason


def _is_small(table: SourceTable) -> bool:
    try:
        return int(table.handle.count()) <= CHECKED_ROWS
    except Exception:  # a feature of the table that delta-rs cannot read
        return False


def _check_uniqueness(table: SourceTable, column: str) -> tuple[int, bool]:
    """How many rows there are, and whether the column is never null and never twice in them.

    By delta-rs' own SQL, which knows about deletion vectors and renamed columns; the files alone would tell too much.
    """
    from deltalake import QueryBuilder

    quoted = '"' + column.replace('"', '""') + '"'
    found = (
        QueryBuilder()
        .register("source", table.handle)
        .execute(f"select count(*) as total, count({quoted}) as filled, count(distinct {quoted}) as apart from source")
        .read_all()
    )
    total, filled, apart = (int(found.column(index)[0].as_py()) for index in range(3))
    return total, total == filled == apart


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def scaffold(table: SourceTable | None, *, to: Path) -> tuple[Scaffold, str]:
    """What is to stand in a file at ``to``, and its text; writes nothing. Without a table it is a mere example."""
    if table is None:
        proposal = KeyProposal(("customer_id",), "", None)
        name, address, about = "customers", "/data/customers", ["The Delta table: a path, a URL or a catalog name."]
        key_about = ["What identifies a row: one column or several, never null, never twice."]
    else:
        name, address = _to_pipeline_name(table.address), _relative_to(table.address, to.parent)
        proposal = propose_key(table, name)
        about, key_about = _describe_table(table), _describe_key(proposal)
    target = _to_target_name(name)
    comment = "\n".join(f"      # {line}".rstrip() for line in about)
    key_comment = "\n".join(f"      # {line}" for line in key_about)
    text = _TEMPLATE.format(
        variable=VARIABLE,
        pipeline=name,
        about=comment,
        table=_to_yaml_scalar(address),
        key_about=key_comment,
        key=", ".join(_to_yaml_scalar(column) for column in proposal.columns),
        target=target,
        storage=_STORAGE if is_s3(address) else "",
    )
    made = Scaffold(
        file=str(to),
        pipeline=name,
        table=address,
        key=proposal.columns,
        key_unique=proposal.unique,
        feed_on=None if table is None else table.feed_on,
        columns=() if table is None else tuple(column.name for column in table.columns),
        variable=VARIABLE,
    )
    return made, text


def write_new(file: Path, text: str, *, overwrite: bool = False) -> None:
    """``x`` and not a look before: whatever is there at that moment stays."""
    try:
        with file.open("w" if overwrite else "x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise ConfigError(
            f"{file} is there already: nothing was written",
            hint="write to another file with --to, or replace it with --force",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written ({(error.strerror or type(error).__name__).lower()})",
            hint="choose another place with --to",
        ) from error


def _describe_table(table: SourceTable) -> list[str]:
    width = max((len(_to_comment(column.name)) for column in table.columns), default=0)
    lines = [f"At version {table.version} it has these columns:"]
    for column in table.columns:
        null = "" if column.nullable else "  not null"
        lines.append(f"  {_to_comment(column.name):<{width}}  {column.type}{null}")
    if table.feed_on:
        lines.append("Its change feed is on.")
    else:
        lines.append("Its change feed is OFF, and only changes made while it is on can be carried. This turns it on:")
        lines.append(f"  deltarelay feed enable {_to_comment(table.address)}")
    return lines


def _describe_key(proposal: KeyProposal) -> list[str]:
    lines = [
        "What identifies a row: one column or several, never null, never twice. A PROPOSAL, to be checked:",
        f"{_to_comment(proposal.columns[0])} was chosen because {proposal.reason}.",
    ]
    if proposal.unique:
        lines.append(f"It was never null and never twice in the {proposal.rows:,} rows that were there.")
    elif proposal.unique is False:
        lines.append(
            f"It does NOT identify the {proposal.rows:,} rows that were there, nor does any other likely column: "
            "name the columns"
        )
        lines.append("that do so together, such as [order_id, line_number].")
    elif proposal.rows == 0:
        lines.append("There was no row to check it against.")
    else:
        lines.append("It was not held against the rows: compare count(*) with the count of distinct values.")
    return lines


def _to_pipeline_name(address: str) -> str:
    last = re.split(r"[/\\]", address.rstrip("/"))[-1]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", last).strip("_-") or "table"


def _to_target_name(name: str) -> str:
    plain = re.sub(r"\W", "_", name.lower())
    return f"public.{'t_' if plain[0].isdigit() else ''}{plain}"[: len("public.") + 60]


def _relative_to(address: str, folder: Path) -> str:
    """As the file has to say it: relative paths start at the file's folder, not at the one the command is run in."""
    if "://" in address or Path(address).is_absolute() or address.startswith("~"):
        return address
    relative = os.path.relpath(address, folder)
    return relative if relative.startswith("..") else f"./{relative}"


def _to_yaml_scalar(text: str) -> str:
    """The text as YAML takes it, in quotes only where it needs them. ``$`` begins a reference, ``$$`` does not."""
    text = text.replace("$", "$$")
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text.isascii()
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _to_comment(name: str) -> str:
    """A name on one line of a comment, whatever is in it."""
    return name if name.isprintable() else json.dumps(name)


_TEMPLATE = """\
# Written by `deltarelay init`. Go through it, then:
#   deltarelay validate             is this file right?
#   deltarelay validate --connect   are source and target ready for it?
#   deltarelay plan                 what would a run do?
#   deltarelay run                  do it
version: 1

connections:
  warehouse:
    kind: postgres
    # The connection string stays out of this file; it is taken from the environment:
    #   export {variable}='postgresql://user:password@host:5432/database'
    # or from a file with the reference ${{file:/run/secrets/warehouse_dsn}}.
    dsn: ${{{variable}}}

pipelines:
  {pipeline}:
    source:
{about}
      table: {table}
{key_about}
      key: [{key}]
      # Where an empty target begins: snapshot (the whole table now, then its changes), earliest (the oldest change still
      # there), a version, or a time with its zone.
      start: snapshot
    sink:
      connection: warehouse
      # Made where it is missing; a table that is there has to be empty.
      table: {target}
      # A change that contradicts the target: refuse_duplicates (stop at a key that is inserted where its row is; correct
      # and count the rest), report (correct and count everything) or refuse (stop at every contradiction).
      conflicts: refuse_duplicates
    # How much is applied in one step; a commit above the limit is a step of its own.
    # window:
    #   max_commits: 500
    #   max_bytes: 256MB

# Settings for the Spark session, by their full names.
# spark:
#   master: local[*,4]
#   conf:
#     spark.driver.memory: 4g

# Without a way to a Maven registry: `deltarelay jars fetch FOLDER` where there is one, then name the folder here.
# jars: [/opt/deltarelay/jars]
{storage}"""
_STORAGE = """
# How to reach S3; left out, it is AWS with the usual keys and region. `deltarelay doctor` looks whether that is so.
# storage:
#   s3: {region: eu-west-1, credentials: default}
# Reading needs no lock. Whoever is to write there as well says what keeps writers apart:
#   commits: {kind: dynamodb, table: delta_log}
"""

"""``deltarelay init``: a first configuration file with comments, generated from a table where one is given."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cdf.errors import ConfigError
from cdf.result import Result
from infra.diagnostics.delta_table import SourceTable
from infra.key_proposal import KeyProposal, propose_key
from infra.s3.address import is_s3

__all__ = [
    "CONNECTION",
    "FURTHER_SETTINGS",
    "HEAD",
    "STORAGE",
    "VARIABLE",
    "Scaffold",
    "refuse_existing",
    "relative_to",
    "scaffold",
    "to_comment",
    "to_pipeline_name",
    "to_yaml_scalar",
    "write_new",
]

VARIABLE = "WAREHOUSE_DSN"
"""The environment variable from which the written file reads its secret."""

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_WORDS = {"true", "false", "null"}


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


def scaffold(table: SourceTable | None, *, to: Path) -> tuple[Scaffold, str]:
    """The content of a file at ``to``: its settings and its text. Writes nothing. Without a table it is an example."""
    if table is None:
        proposal = KeyProposal(("customer_id",), "", None)
        name, address, about = "customers", "/data/customers", ["The Delta table: a path, a URL or a catalog name."]
        key_about = ["What identifies a row: one or several columns, never null, unique together."]
    else:
        name, address = to_pipeline_name(table.address), relative_to(table.address, to.parent)
        proposal = propose_key(table, name)
        about, key_about = _describe_table(table), _describe_key(proposal)
    target = _to_target_name(name)
    comment = "\n".join(f"      # {line}".rstrip() for line in about)
    key_comment = "\n".join(f"      # {line}" for line in key_about)
    text = _TEMPLATE.format(
        head=HEAD,
        connection=CONNECTION.format(variable=VARIABLE),
        pipeline=name,
        about=comment,
        table=to_yaml_scalar(address),
        key_about=key_comment,
        key=", ".join(to_yaml_scalar(column) for column in proposal.columns),
        target=target,
        further=FURTHER_SETTINGS,
        storage=STORAGE if is_s3(address) else "",
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
    """Create the file. Mode ``x`` never replaces a file that appears meanwhile."""
    try:
        with file.open("w" if overwrite else "x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise _already_exists(file) from None
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written ({(error.strerror or type(error).__name__).lower()})",
            hint="choose another file with --to",
        ) from error


def refuse_existing(file: Path, *, overwrite: bool) -> None:
    """Raise ConfigError if ``write_new`` would refuse the file."""
    if file.exists() and not overwrite:
        raise _already_exists(file)


def _already_exists(file: Path) -> ConfigError:
    hint = "write to another file with --to, or replace it with --force"
    return ConfigError(f"{file} already exists: nothing was written", hint=hint)


def _describe_table(table: SourceTable) -> list[str]:
    width = max((len(to_comment(column.name)) for column in table.columns), default=0)
    lines = [f"At version {table.version} it has these columns:"]
    for column in table.columns:
        null = "" if column.nullable else "  not null"
        lines.append(f"  {to_comment(column.name):<{width}}  {column.type}{null}")
    if table.feed_on:
        lines.append("Its change feed is on.")
    else:
        lines.append("Its change feed is OFF; only changes made while it is on can be replicated. Enable it with:")
        lines.append(f"  deltarelay feed enable {to_comment(table.address)}")
    return lines


def _describe_key(proposal: KeyProposal) -> list[str]:
    lines = [
        "What identifies a row: one or several columns, never null, unique together. A PROPOSAL, please check it:",
        f"{' with '.join(map(to_comment, proposal.columns))} was chosen because {proposal.reason}.",
    ]
    if proposal.unique:
        lines.append(f"It was unique and never null in the {proposal.rows:,} rows of the table.")
    elif proposal.unique is False:
        lines.append(
            f"It does NOT identify the {proposal.rows:,} rows of the table, nor does any other likely column: "
            "name the columns"
        )
        lines.append("that do so together, such as [order_id, line_number].")
    elif proposal.rows == 0:
        lines.append("The table had no rows to check it.")
    else:
        lines.append("It was not checked against the rows: compare count(*) with the count of distinct values.")
    return lines


def to_pipeline_name(address: str) -> str:
    last = re.split(r"[/\\]", address.rstrip("/"))[-1]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", last).strip("_-") or "table"


def _to_target_name(name: str) -> str:
    plain = re.sub(r"\W", "_", name.lower())
    return f"public.{'t_' if plain[0].isdigit() else ''}{plain}"[: len("public.") + 60]


def relative_to(address: str, folder: Path) -> str:
    """The address as written in the file: relative paths start at the folder of the file, not at the current one."""
    if "://" in address or Path(address).is_absolute() or address.startswith("~"):
        return address
    relative = os.path.relpath(address, folder)
    return relative if relative.startswith("..") else f"./{relative}"


def to_yaml_scalar(text: str) -> str:
    """The text as a YAML scalar, quoted only where needed. ``$`` begins a reference, ``$$`` is a plain ``$``."""
    text = text.replace("$", "$$")
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text.isascii()
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def to_comment(name: str) -> str:
    """A name that fits on one line of a comment."""
    return name if name.isprintable() else json.dumps(name)


HEAD = """\
# Written by `deltarelay init`. Review it, then run:
#   deltarelay validate             check this file
#   deltarelay validate --connect   check source and target
#   deltarelay plan                 show what a run would do
#   deltarelay run                  replicate
version: 1
"""
CONNECTION = """\
connections:
  warehouse:
    kind: postgres
    # The connection string is not written in this file; it is read from the environment:
    #   export {variable}='postgresql://user:password@host:5432/database'
    # or from a file, with the reference ${{file:/run/secrets/warehouse_dsn}}.
    dsn: ${{{variable}}}
"""
FURTHER_SETTINGS = """\
      # A change that contradicts the target: refuse_duplicates (stop when an inserted key exists already; correct and
      # count all others), report (correct and count all) or refuse (stop at every contradiction).
      conflicts: refuse_duplicates
    # How much is applied in one step; a commit above the limit is applied alone.
    # window:
    #   max_commits: 500
    #   max_bytes: 256MB

# Settings of the Spark session, by their full names.
# spark:
#   master: local[*,4]
#   conf:
#     spark.driver.memory: 4g

# Without access to a Maven registry: run `deltarelay jars fetch FOLDER` on another machine, then name the folder here.
# jars: [/opt/deltarelay/jars]
"""
STORAGE = """
# How to access S3; by default AWS with the default credentials and region. Check it with `deltarelay doctor`.
# storage:
#   s3: {region: eu-west-1, credentials: default}
# Reading needs no lock. To write to S3 as well, configure how writers are coordinated:
#   commits: {kind: dynamodb, table: delta_log}
"""
_TEMPLATE = """\
{head}
{connection}
pipelines:
  {pipeline}:
    source:
{about}
      table: {table}
{key_about}
      key: [{key}]
      # Where to begin while the target is empty: snapshot (the whole table now, then its changes), earliest (the oldest
      # available change), a version, or a timestamp with its time zone.
      start: snapshot
    sink:
      connection: warehouse
      # Created where it is missing; an existing table must be empty.
      table: {target}
{further}{storage}"""

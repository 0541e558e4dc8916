"""``tables: /lake/sales/*``: the Delta tables that a pattern meets, on this machine or on S3. No JVM."""

from __future__ import annotations

import fnmatch
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError
from infra.s3.address import S3Address, is_s3, normalised

if TYPE_CHECKING:
    from infra.s3.model import Storage

__all__ = ["NAME", "check_pattern", "fill", "names_table", "table_name", "tables_at"]

NAME = "{name}"
"""Stands in a sink's options for the last part of a table's address."""
LOG = "_delta_log"

_WILD = re.compile(r"[*?\[]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_USABLE = re.compile(r"\w(?:[\w. -]*[\w-])?")
_MOST_THREADS = 8


def check_pattern(pattern: str) -> str:
    """Raises ValueError where the pattern is not a folder with wildcards in its last part."""
    if "/" not in pattern:
        raise ValueError("must be a path or a URL that ends in a pattern, such as /lake/sales/*")
    if _URL.match(pattern) and not is_s3(pattern):
        raise ValueError("can be a local path or an address on S3; list other tables one by one with `table`")
    folder, last = _split(pattern)
    if _WILD.search(folder):
        raise ValueError("may have wildcards in its last part only, such as /lake/sales/*")
    if not _WILD.search(last):
        raise ValueError("has no wildcard in its last part; for a single table write `table`")
    return pattern


def tables_at(pattern: str, storage: Storage) -> list[str]:
    """The addresses of the Delta tables that a checked pattern meets, sorted.

    Raises ConfigError where the folder or the bucket cannot be listed, SourceUnavailable where it does not answer.
    """
    return sorted(_on_s3(pattern, storage) if is_s3(pattern) else _here(pattern))


def table_name(address: str) -> str:
    """What ``{name}`` stands for. Raises ValueError where it cannot be part of a pipeline's name."""
    name = _split(address)[1]
    if _USABLE.fullmatch(name) is None:
        raise ValueError(
            "a folder's name may consist of letters, digits, spaces, _ - and . only: "
            "rename it, or give the table a pipeline of its own with `table`"
        )
    return name


def names_table(options: Any) -> bool:
    """Whether ``{name}`` stands anywhere in the options."""
    if isinstance(options, dict):
        return any(map(names_table, options.values()))
    if isinstance(options, list):
        return any(map(names_table, options))
    return isinstance(options, str) and NAME in options


def fill(options: Any, name: str) -> Any:
    """The options of one table: every ``{name}`` in a text filled in."""
    if isinstance(options, dict):
        return {key: fill(value, name) for key, value in options.items()}
    if isinstance(options, list):
        return [fill(value, name) for value in options]
    return options.replace(NAME, name) if isinstance(options, str) else options


def _split(address: str) -> tuple[str, str]:
    folder, _, last = address.rstrip("/").rpartition("/")
    return folder, last


def _matches(name: str, pattern: str) -> bool:
    """As a shell has it: what begins with a dot is met only by a pattern that does; so here with ``_``, Delta's own sign."""
    hidden = name[:1] in (".", "_") and name[:1] != pattern[:1]
    return not hidden and fnmatch.fnmatchcase(name, pattern)


def _here(pattern: str) -> list[str]:
    folder, last = _split(pattern)
    path = Path(folder or "/")
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if _matches(entry.name, last)]
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(
            f"the folder {folder or '/'} cannot be listed ({reason})",
            hint="correct the path, and check the rights on it",
        ) from error
    return [f"{folder}/{name}" for name in names if (path / name / LOG).is_dir()]


def _on_s3(pattern: str, storage: Storage) -> list[str]:
    from infra.s3 import clients as aws
    from infra.s3.probe import probe_buckets
    from infra.s3.settings import located

    where = S3Address.parse(normalised(pattern))
    folder, _, last = where.key.rpartition("/")
    storage = located(storage)
    probe_buckets(storage, [f"s3a://{where.bucket}/{folder}"])
    with aws.in_words(f"listing s3a://{where.bucket}/{folder}"):
        client = aws.s3(storage.s3.bucket(where.bucket))
        begins = f"{folder}/" if folder else ""
        fixed = _WILD.split(last, maxsplit=1)[0]
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=where.bucket, Prefix=begins + fixed, Delimiter="/"
        )
        found = [str(one["Prefix"]) for page in pages for one in page.get("CommonPrefixes", ())]
        keys = [key.rstrip("/") for key in found if _matches(key.rstrip("/").rpartition("/")[2], last)]

        def is_table(key: str) -> bool:
            answer = client.list_objects_v2(Bucket=where.bucket, Prefix=f"{key}/{LOG}/", MaxKeys=1)
            return bool(answer.get("KeyCount"))

        with ThreadPoolExecutor(_MOST_THREADS) as pool:
            there = list(pool.map(is_table, keys))
    return [str(S3Address(where.bucket, key)) for key, yes in zip(keys, there, strict=True) if yes]

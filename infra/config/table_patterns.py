"""``tables: /lake/sales/*``: the Delta tables that a pattern matches, on this machine or on S3. Needs no JVM.

The tables of a catalog schema, ``tables: sales.*``, are known to Spark only: ``infra.spark.catalog_tables`` lists them.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError
from infra.s3.address import S3Address, is_s3, normalize_address

if TYPE_CHECKING:
    from infra.s3.model import Storage

__all__ = [
    "NAME",
    "check_pattern",
    "contains_name",
    "fill_in_name",
    "find_excluded",
    "has_wildcard",
    "is_catalog_pattern",
    "list_tables",
    "matches_pattern",
    "split_address",
    "table_name",
]

NAME = "{name}"
"""In the options of a sink: the last part of the table's address."""
LOG = "_delta_log"

_WILD = re.compile(r"[*?\[]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PLAIN_NAME = re.compile(r"\w(?:[\w. -]*[\w-])?")
_MAX_THREADS = 8


def check_pattern(pattern: str) -> str:
    """Raises ValueError unless the pattern is a folder or a catalog schema, and a last part with wildcards."""
    if "/" not in pattern and not is_catalog_pattern(pattern):
        raise ValueError("must be a path or a URL that ends in a pattern, such as /lake/sales/*, or a schema: sales.*")
    if _URL.match(pattern) and not is_s3(pattern):
        raise ValueError("must be a local path or an address on S3; list tables elsewhere one by one with `table`")
    folder, last = split_address(pattern)
    if _WILD.search(folder):
        raise ValueError("may have wildcards in its last part only, such as /lake/sales/*")
    if not _WILD.search(last):
        raise ValueError("has no wildcard in its last part; for a single table write `table`")
    return pattern


def is_catalog_pattern(pattern: str) -> bool:
    """Whether a pattern is that of a schema in Spark's catalog, SCHEMA.PATTERN or CATALOG.SCHEMA.PATTERN."""
    return "/" not in pattern and "." in pattern.strip(".")


def list_tables(pattern: str, storage: Storage) -> list[str]:
    """The addresses of the Delta tables that a checked pattern matches, sorted.

    Raises ConfigError where the folder or the bucket cannot be listed, SourceUnavailable where S3 does not answer.
    """
    return sorted(_list_on_s3(pattern, storage) if is_s3(pattern) else _list_local(pattern))


def table_name(address: str) -> str:
    """The value of ``{name}``. Raises ValueError where it cannot be part of a pipeline's name."""
    name = split_address(address)[1]
    if _PLAIN_NAME.fullmatch(name) is None:
        raise ValueError(
            "the name of a table may consist of letters, digits, spaces, _ - and . only; "
            "rename it, or give the table a separate pipeline with `table`"
        )
    return name


def has_wildcard(text: str) -> bool:
    return _WILD.search(text) is not None


def find_excluded(names: Sequence[str], exclude: Sequence[str]) -> set[str]:
    """Those of the names that ``exclude`` has, or that match a pattern in it. The name of a table is never a pattern."""
    patterns = [one for one in exclude if one not in names]
    return {name for name in names if name in exclude or any(fnmatch.fnmatchcase(name, one) for one in patterns)}


def contains_name(options: Any) -> bool:
    """Whether ``{name}`` is anywhere in the options."""
    if isinstance(options, dict):
        return any(map(contains_name, options.values()))
    if isinstance(options, list):
        return any(map(contains_name, options))
    return isinstance(options, str) and NAME in options


def fill_in_name(options: Any, name: str) -> Any:
    """The options of one table: every ``{name}`` replaced by its name."""
    if isinstance(options, dict):
        return {key: fill_in_name(value, name) for key, value in options.items()}
    if isinstance(options, list):
        return [fill_in_name(value, name) for value in options]
    return options.replace(NAME, name) if isinstance(options, str) else options


def split_address(address: str) -> tuple[str, str]:
    """The folder or schema of a table or pattern, and its last part."""
    folder, _, last = address.rstrip("/").rpartition("/" if "/" in address else ".")
    return folder, last


def matches_pattern(name: str, pattern: str) -> bool:
    """Like a shell: a name that begins with a dot, or with Delta's ``_``, needs a pattern that begins with it."""
    is_hidden = name[:1] in (".", "_") and name[:1] != pattern[:1]
    return not is_hidden and fnmatch.fnmatchcase(name, pattern)


def _list_local(pattern: str) -> list[str]:
    folder, last = split_address(pattern)
    path = Path(folder or "/")
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if matches_pattern(entry.name, last)]
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(
            f"the folder {folder or '/'} cannot be listed ({reason})",
            hint="correct the path, and check its permissions",
        ) from error
    return [f"{folder}/{name}" for name in names if (path / name / LOG).is_dir()]


def _list_on_s3(pattern: str, storage: Storage) -> list[str]:
    from infra.s3.clients import connect_s3
    from infra.s3.errors import translate_aws_errors
    from infra.s3.probe import probe_buckets
    from infra.s3.settings import fill_in_region

    address = S3Address.parse(normalize_address(pattern))
    folder, _, last = address.key.rpartition("/")
    storage = fill_in_region(storage)
    probe_buckets(storage, [f"s3a://{address.bucket}/{folder}"])
    with translate_aws_errors(f"listing s3a://{address.bucket}/{folder}"):
        client = connect_s3(storage.s3.bucket(address.bucket))
        prefix = f"{folder}/" if folder else ""
        fixed = _WILD.split(last, maxsplit=1)[0]
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=address.bucket, Prefix=prefix + fixed, Delimiter="/"
        )
        folders = [str(one["Prefix"]) for page in pages for one in page.get("CommonPrefixes", ())]
        keys = [key.rstrip("/") for key in folders if matches_pattern(key.rstrip("/").rpartition("/")[2], last)]

        def is_table(key: str) -> bool:
            response = client.list_objects_v2(Bucket=address.bucket, Prefix=f"{key}/{LOG}/", MaxKeys=1)
            return bool(response.get("KeyCount"))

        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            are_tables = list(pool.map(is_table, keys))
    return [str(S3Address(address.bucket, key)) for key, yes in zip(keys, are_tables, strict=True) if yes]

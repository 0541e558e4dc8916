"""Checked values of the ``erasure`` block: addresses, paths to a person, keys, dates, names."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from audit.encryption.root_keys import check_root
from audit.erasure.register.secrets import SealKey, WatchKey
from audit.erasure.table_graph import parse_path
from audit.signing.signer import Signer
from cdf.errors import ConfigError
from infra.config.values import check_columns, folder_of, parse_count, resolve_table

__all__ = [
    "Address",
    "ColumnClasses",
    "Columns",
    "Day",
    "NonEmptyText",
    "PersonPath",
    "RootKeyText",
    "RowCount",
    "SchemaName",
    "SealKeyText",
    "SigningKeyText",
    "WatchKeyText",
    "check_spellings",
]

_MAX_NAME_BYTES = 63  # PostgreSQL truncates longer names without an error
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _resolve_address(value: str, info: ValidationInfo) -> str:
    return resolve_table(value, folder_of(info))


def _resolve_person_path(value: str, info: ValidationInfo) -> str:
    path = parse_path(value)
    if isinstance(path, str):
        return path
    return f"{path.column} -> {resolve_table(path.table, folder_of(info))}.{path.other}"


def _parse_day(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return dt.date.fromisoformat(value)
    except ValueError:
        pass  # such as 2026-02-30
    raise ValueError("must be a date such as 2031-12-31")


def _check_schema_name(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("must be a name")
    if len(value.encode()) > _MAX_NAME_BYTES:
        raise ValueError(f"is longer than {_MAX_NAME_BYTES} bytes, the limit of PostgreSQL")
    return value


def _check_key(parse: Callable[[str], object], problem: str) -> AfterValidator:
    """``parse`` raises ConfigError for a text that is not a key; ``problem`` says so, and where a key comes from."""

    def check(value: SecretStr) -> SecretStr:
        try:
            parse(value.get_secret_value())
        except ConfigError:
            pass
        else:
            return value
        raise ValueError(problem)

    return AfterValidator(check)


def check_spellings(value: Any, info: ValidationInfo) -> Any:
    """Refuse two spellings of one address: they would be one table, and half of its settings would be lost."""
    if isinstance(value, dict):
        first: dict[str, str] = {}
        for written in value:
            try:
                address = resolve_table(str(written), folder_of(info))
            except ValueError:
                continue  # reported at the key itself
            if address in first:
                raise ValueError(f"lists one table twice, in two spellings: {address}")
            first[address] = written
    return value


NonEmptyText = Annotated[str, StringConstraints(min_length=1)]
Address = Annotated[str, AfterValidator(_resolve_address)]
PersonPath = Annotated[str, AfterValidator(_resolve_person_path)]
"""A column, or ``column -> table.column``."""
SchemaName = Annotated[str, AfterValidator(_check_schema_name)]
SigningKeyText = Annotated[
    SecretStr,
    _check_key(
        Signer.parse,
        "is not a signing key: create one with `deltarelay erase keygen`, and read it from a file with "
        '"${file:/run/secrets/erasure.key}"',
    ),
]
WatchKeyText = Annotated[
    SecretStr,
    _check_key(WatchKey.parse, "is not a watch key: create one with `deltarelay erase split-keys FOLDER`"),
]
SealKeyText = Annotated[
    SecretStr,
    _check_key(SealKey.parse, "is not a seal key: create one with `deltarelay erase split-keys FOLDER`"),
]
RootKeyText = Annotated[
    SecretStr,
    _check_key(
        check_root,
        "is not a root key: create one with `deltarelay keys new-root FILE`, and read it from a file with "
        '"${file:/run/secrets/root.key}"; or write aws_kms: and the ARN of an AWS KMS key',
    ),
]
Columns = Annotated[tuple[str, ...], AfterValidator(check_columns)]
RowCount = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+$|\$\{"}]}),
]
ColumnClasses = Annotated[
    dict[NonEmptyText, Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(check_columns)]], Field()
]
Day = Annotated[
    dt.date,
    BeforeValidator(_parse_day),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$|\$\{"}),
]

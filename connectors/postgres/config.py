"""What may be configured for the PostgreSQL sink. Imports no driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

if TYPE_CHECKING:
    from cdf.sink import Sink

__all__ = ["POSTGRES", "PostgresConnection", "PostgresKind", "PostgresOptions", "split_table"]

_DEFAULT_SCHEMA = "public"
_LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer names off without an error
_PART = re.compile(r'"(?P<quoted>(?:[^"\0]|"")+)"|(?P<bare>[^\W\d][\w$]*)')


def split_table(table: str) -> tuple[str, str]:
    """Schema and table of ``table`` or ``schema.table``, read as SQL reads it.

    Unquoted names are folded to lower case; in double quotes everything counts as written (``"a.b"`` is one name,
    ``""`` inside stands for one quote). Raises ``ValueError`` for anything else.
    """
    parts: list[str] = []
    at = 0
    while True:
        found = _PART.match(table, at)
        if found is None:
            raise ValueError(
                "must be `table` or `schema.table`; put a name that is not plain letters, digits and _ in double quotes"
            )
        quoted = found["quoted"]
        parts.append(quoted.replace('""', '"') if quoted is not None else _fold(found["bare"]))
        at = found.end()
        if at == len(table):
            break
        if table[at] != ".":
            raise ValueError(
                "must be `table` or `schema.table`; put a name that is not plain letters, digits and _ in double quotes"
            )
        at += 1
    if len(parts) > 2:
        raise ValueError("must have at most two parts, `schema.table`; the database is chosen by the connection's dsn")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"has a name of more than {_LONGEST_NAME} bytes, which PostgreSQL would cut off")
    return (parts[0], parts[1]) if len(parts) == 2 else (_DEFAULT_SCHEMA, parts[0])


def _fold(name: str) -> str:
    # PostgreSQL folds ASCII letters only when the database is UTF-8
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _check_table(table: str) -> str:
    split_table(table)
    return table


def _check_dsn(dsn: SecretStr) -> SecretStr:
    if not dsn.get_secret_value().strip():
        raise ValueError("is empty; give a connection string such as postgresql://user@host:5432/database")
    return dsn


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class PostgresConnection(_Model):
    """How to reach a PostgreSQL database."""

    dsn: Annotated[SecretStr, AfterValidator(_check_dsn)] = Field(
        title="Connection string",
        description="libpq connection string or URL. Keep the password out of the file: ${WAREHOUSE_DSN} takes it from "
        "the environment, ${file:/run/secrets/dsn} from a file.",
    )


class PostgresOptions(_Model):
    """Where and how a pipeline writes into PostgreSQL."""

    table: Annotated[str, AfterValidator(_check_table)] = Field(
        title="Target table",
        description="`schema.table`, or `table` in the schema public. Names are read as SQL reads them: put one in "
        "double quotes to keep its case.",
    )
    conflicts: Literal["report", "refuse"] = Field(
        default="report",
        title="On conflicts",
        description="What happens when a change contradicts the target, for example an update of a row that is not "
        "there: `report` makes the target right and counts it, `refuse` stops before anything is written.",
    )


class PostgresKind:
    """The sink kind ``postgres``."""

    name = "postgres"
    connection = PostgresConnection
    options = PostgresOptions

    def target(self, options: PostgresOptions) -> str:
        """The table with its schema, in one spelling for all ways to write it."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in split_table(options.table))

    def build(self, connection: PostgresConnection, options: PostgresOptions, *, pipeline: str) -> Sink:
        from connectors.postgres.sink import PostgresSink

        return PostgresSink(
            connection.dsn.get_secret_value(),
            table=options.table,
            conflicts=options.conflicts,
            pipeline=pipeline,
        )


POSTGRES = PostgresKind()

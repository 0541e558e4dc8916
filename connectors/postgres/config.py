"""Configuration models of the PostgreSQL sink. Imports no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.dataset_names import TargetDataset
from connectors.postgres.options import (
    REJECT_LIMIT,
    Deletes,
    KeyChanges,
    Modes,
    OnConflict,
    Rejects,
    SchemaChanges,
)
from connectors.postgres.table_name import MAX_NAME_BYTES, split_table

if TYPE_CHECKING:
    from audit.database import Database
    from cdf.sink import Sink

__all__ = ["POSTGRES", "PostgresConnection", "PostgresKind", "PostgresOptions"]


def _check_name(name: str) -> str:
    if not name or "\0" in name:
        raise ValueError("must be a name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"is longer than {MAX_NAME_BYTES} bytes, which PostgreSQL would cut off")
    return name


def _check_table(table: str) -> str:
    split_table(table)
    return table


def _check_each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("names a column twice")
    return names


def _check_rename(names: dict[str, str]) -> dict[str, str]:
    if len(set(names.values())) < len(names):
        raise ValueError("gives two columns one name")
    return names


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
    """The target table of a pipeline, and how it is written."""

    table: Annotated[str, AfterValidator(_check_table)] = Field(
        title="Target table",
        description="`schema.table`, or `table` in the schema public. Names are read as SQL reads them: put one in "
        "double quotes to keep its case.",
    )
    conflicts: OnConflict = Field(
        default="refuse_duplicates",
        title="On conflicts",
        description="What happens when a change contradicts the target. `refuse_duplicates` stops, before anything is "
        "written, if a key is inserted that the target already has, or is inserted twice (the source may have it in two "
        "rows); it corrects and counts all other contradictions, for example an update of a missing row; `report` corrects "
        "and "
        "counts everything; `refuse` stops at every contradiction.",
    )
    include: Annotated[tuple[str, ...], AfterValidator(_check_each_once)] = Field(
        default=(), title="Columns", description="Only these columns of the source are replicated (default: all)."
    )
    exclude: Annotated[tuple[str, ...], AfterValidator(_check_each_once)] = Field(
        default=(), title="Excluded columns", description="These columns of the source are not replicated."
    )
    rename: Annotated[dict[str, Annotated[str, AfterValidator(_check_name)]], AfterValidator(_check_rename)] = Field(
        default_factory=dict, title="Column names", description="A column of the source, and its name in the target."
    )
    metadata: Annotated[
        tuple[Literal["_commit_version", "_commit_timestamp", "_applied_at"], ...], AfterValidator(_check_each_once)
    ] = Field(
        default=(),
        title="Metadata columns",
        description="Additional columns: the version and the commit time of the last change of a row (for rows of the "
        "initial copy: of the copied version), and the time at which the change was applied.",
    )
    arrays: Literal["jsonb", "native"] = Field(
        default="jsonb",
        title="Arrays",
        description="`native`: arrays of plain elements become arrays of PostgreSQL (`integer[]`); nested ones stay jsonb.",
    )
    deletes: Deletes = Field(
        default="hard",
        title="Deletes",
        description="`hard` deletes the row, `soft` sets its `_deleted_at` (cleared if the row is inserted again), "
        "`ignore` leaves the row unchanged.",
    )
    key_changes: KeyChanges = Field(
        default="follow",
        title="Key changes",
        description="An update that changes the key of a row: `follow` deletes the old key and inserts the new one, "
        "`refuse` stops before anything is written.",
    )
    schema_changes: SchemaChanges = Field(
        default="follow",
        title="Schema changes",
        description="`follow` alters the target as the source was altered (columns added, widened, renamed, dropped), "
        "`add_columns` follows new columns only, `refuse` follows no change.",
    )
    rejects: Rejects = Field(
        default="refuse",
        title="Rejected rows",
        description="A row that cannot be stored: `refuse` stops before any row of its window is written, `dead_letter` "
        "stores it in deltarelay.dead_letter and applies the other rows.",
    )
    reject_limit: int = Field(
        default=REJECT_LIMIT,
        ge=1,
        title="Maximum number of rejected rows",
        description="With `rejects: dead_letter`: maximum number of dead letters; one more stops the pipeline.",
    )
    reject_rows: bool = Field(
        default=False,
        title="Keep rejected rows",
        description="With `rejects: dead_letter`: store the row itself in its dead letter, not only its key.",
    )

    @model_validator(mode="after")
    def _check_columns(self) -> PostgresOptions:
        if both := set(self.include) & set(self.exclude):
            raise ValueError(f"include and exclude both name {', '.join(map(repr, sorted(both)))}")
        if idle := set(self.rename) & set(self.exclude):
            raise ValueError(f"rename and exclude both name {', '.join(map(repr, sorted(idle)))}")
        if self.include and (idle := set(self.rename) - set(self.include)):
            raise ValueError(f"rename names {', '.join(map(repr, sorted(idle)))}, which include leaves out")
        return self


class PostgresKind:
    """The sink kind ``postgres``."""

    name = "postgres"
    connection = PostgresConnection
    options = PostgresOptions

    def target(self, options: PostgresOptions) -> str:
        """The table with its schema, in the same spelling however the user wrote it."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in split_table(options.table))

    def describe_dataset(self, connection: PostgresConnection, options: PostgresOptions) -> TargetDataset:
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(connection.dsn.get_secret_value())
        host = str(parts.get("host") or "localhost").partition(",")[0]
        port = str(parts.get("port") or 5432).partition(",")[0]
        # A folder is that of the server's socket, on this machine
        host = "localhost" if host.startswith(("/", "@")) else host
        database = str(parts.get("dbname") or parts.get("user") or "postgres")
        return TargetDataset(
            f"postgres://{host}:{port}",
            ".".join((database, *split_table(options.table))),
            options.include,
            options.exclude,
            dict(options.rename),
        )

    def open_state(self, connection: PostgresConnection) -> Database:
        from audit.database import Database
        from connectors.postgres.state.migrations import STATE

        return Database(connection.dsn.get_secret_value(), STATE, made_by="deltarelay run")

    def build(self, connection: PostgresConnection, options: PostgresOptions, *, pipeline: str) -> Sink:
        from connectors.postgres.column_mapping import Columns
        from connectors.postgres.sink import PostgresSink

        return PostgresSink(
            connection.dsn.get_secret_value(),
            table=options.table,
            columns=Columns(
                options.include,
                options.exclude,
                dict(options.rename),
                options.metadata,
                native_arrays=options.arrays == "native",
            ),
            modes=Modes(
                deletes=options.deletes,
                key_changes=options.key_changes,
                schema_changes=options.schema_changes,
                rejects=options.rejects,
                reject_limit=options.reject_limit,
                reject_rows=options.reject_rows,
            ),
            conflicts=options.conflicts,
            pipeline=pipeline,
        )


POSTGRES = PostgresKind()

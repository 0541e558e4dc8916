"""The ``erasure`` block of the configuration: whose data are where, what may not go yet, and who keeps the state."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from audit.encryption.root_keys import check_root
from audit.erasure.model import Hold, OnErase, OnReturn, PersonalTable, Subject
from audit.erasure.register.secrets import Keys, Marker, SealKey, WatchKey
from audit.erasure.table_graph import Graph, parse_path
from audit.identifiers import Spelling
from audit.signing.signer import Signer
from cdf.errors import ConfigError
from infra.config.base_model import Model
from infra.config.values import parse_count, resolve_table

__all__ = ["PARTS", "Erasure", "ErasureHold", "ErasureKeys", "ErasureState", "ErasureSubject", "ErasureTable"]

PARTS = "parts"
"""In the context of an error of ours: the places below it, each with its message."""
_LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer names off without an error
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _folder(info: ValidationInfo) -> Path | None:
    return info.context.get("folder") if isinstance(info.context, dict) else None


def _address(value: str, info: ValidationInfo) -> str:
    return resolve_table(value, _folder(info))


def _path(value: str, info: ValidationInfo) -> str:
    path = parse_path(value)
    if isinstance(path, str):
        return path
    return f"{path.column} -> {resolve_table(path.table, _folder(info))}.{path.other}"


def _day(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return dt.date.fromisoformat(value)
    except ValueError:
        pass  # such as 2026-02-30
    raise ValueError("must be a date such as 2031-12-31")


def _schema_name(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("must be a name")
    if len(value.encode()) > _LONGEST_NAME:
        raise ValueError(f"is longer than {_LONGEST_NAME} bytes, which PostgreSQL would cut off")
    return value


def _key(value: SecretStr) -> SecretStr:
    try:
        Signer.parse(value.get_secret_value())
    except ConfigError:
        pass
    else:
        return value
    raise ValueError(
        'is no signing key: `deltarelay erase keygen` makes one, "${file:/run/secrets/erasure.key}" takes it from a file'
    )


def _apart(kind: type[WatchKey] | type[SealKey]) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        try:
            kind.parse(value.get_secret_value())
        except ConfigError:
            raise ValueError(f"is no {kind.kind.lower()} key: `deltarelay erase split-keys FOLDER` writes it") from None
        return value

    return AfterValidator(check)


def _root_key(value: SecretStr) -> SecretStr:
    try:
        check_root(value.get_secret_value())
    except ConfigError:
        pass
    else:
        return value
    raise ValueError(
        'is no root key: `deltarelay keys new-root FILE` makes one, "${file:/run/secrets/root.key}" takes it '
        "from a file; or aws_kms: and the ARN of a key of AWS KMS"
    )


def _columns(value: tuple[str, ...]) -> tuple[str, ...]:
    if not all(column.strip() for column in value):
        raise ValueError("has an empty column name")
    if len({column.lower() for column in value}) < len(value):
        raise ValueError("names a column twice")
    return value


def _each_once(value: Any, info: ValidationInfo) -> Any:
    """Two spellings of one address would be one table with half of its settings lost."""
    if isinstance(value, dict):
        first: dict[str, str] = {}
        for written in value:
            try:
                address = resolve_table(str(written), _folder(info))
            except ValueError:
                continue  # told at the key itself
            if address in first:
                raise ValueError(f"names one table twice, in two spellings: {address}")
            first[address] = written
    return value


_WatchKey = Annotated[SecretStr, _apart(WatchKey)]
_SealKey = Annotated[SecretStr, _apart(SealKey)]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Address = Annotated[str, AfterValidator(_address)]
_Rows = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+$|\$\{"}]}),
]
_Classes = Annotated[dict[_Text, Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_columns)]], Field()]
_Day = Annotated[
    dt.date,
    BeforeValidator(_day),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$|\$\{"}),
]


class ErasureState(Model):
    """Where the requests and what became of them are kept."""

    connection: str = Field(title="Connection", description="The name of a connection of kind postgres.")
    schema_name: Annotated[str, AfterValidator(_schema_name)] = Field(
        default="erasure", alias="schema", title="Schema", description="Where the tables are, or are made."
    )
    identity: _Text | None = Field(
        default=None,
        title="Identity",
        description="Of the register, as `deltarelay erase init` prints it: commands and pipelines refuse to work with any "
        "other, such as an empty one in its place.",
    )


class ErasureKeys(Model):
    """Where the keys of persons are kept, and what opens them."""

    connection: str = Field(
        title="Connection",
        description="The name of a connection of kind postgres, best to a database that nothing else is in, with backups "
        "of its own.",
    )
    schema_name: Annotated[str, AfterValidator(_schema_name)] = Field(
        default="keys", alias="schema", title="Schema", description="Where the tables are, or are made."
    )
    root_key: Annotated[SecretStr, AfterValidator(_root_key)] = Field(
        title="Root key",
        description="The key of `deltarelay keys new-root`, best as ${file:/run/secrets/root.key}; or aws_kms:ARN, for a "
        "key of AWS KMS, which is asked with the credentials of `storage.s3`. Without it every sealed value is lost.",
    )


class ErasureSubject(Model):
    """A kind of person."""

    identifiers: dict[_Text, Spelling] = Field(
        min_length=1,
        title="Identifiers",
        description="By what such a person is named in a request, and how two values are compared: `exact`, or `email` "
        "(without regard to case, surrounding blanks, and how Unicode composes the characters).",
    )


class ErasureTable(Model):
    """A table with rows of a subject."""

    subject: str = Field(title="Subject", description="The name of an entry under `subjects`.")
    path: Annotated[str, AfterValidator(_path)] = Field(
        title="Path",
        description="A column that is an identifier of the subject; or `column -> table.column`: the rows whose column is "
        "in that column of the rows that are erased from another of these tables.",
    )
    personal: Annotated[tuple[str, ...], AfterValidator(_columns)] = Field(
        default=(), title="Personal columns", description="Columns with personal data; `nullify` empties these."
    )
    on_erase: OnErase = Field(
        default="delete",
        title="On erase",
        description="`delete` the rows, or `nullify` their personal columns where others need the rest of the row.",
    )
    classes: _Classes = Field(
        default={},
        title="Classes",
        description="Columns that audit trails have sealed, by a name of your choice such as `contact`: under a key of the "
        "person's for each class, which an erasure destroys. Needs `keys`.",
    )
    others: tuple[ErasureOther, ...] = Field(
        default=(),
        title="Others",
        description="Further people whom a row names, such as the recipient beside the sender. No link leads to them.",
    )


class ErasureOther(Model):
    """What the rows of a table say of one more person."""

    subject: str | None = Field(
        default=None, title="Subject", description="The name of an entry under `subjects`; else that of the table."
    )
    path: Annotated[str, AfterValidator(_path)] = Field(
        title="Path", description="Whose it is, as in `path` of the table: by columns of this person alone."
    )
    personal: Annotated[tuple[str, ...], AfterValidator(_columns)] = Field(
        default=(), title="Personal columns", description="Columns with data of this person; `nullify` empties these."
    )
    on_erase: OnErase = Field(
        default="nullify",
        title="On erase",
        description="`nullify` the personal columns, or `delete` the rows with all that they say of others.",
    )
    classes: _Classes = Field(
        default={},
        title="Classes",
        description="Columns with data of this person that audit trails have sealed, as in `classes` of the table.",
    )


class ErasureHold(Model):
    """What may not go yet: the rows of a table, or the keys of a class."""

    table: _Address | None = Field(default=None, title="Table", description="One of `tables`, whose rows have to stay.")
    class_name: _Text | None = Field(
        default=None,
        alias="class",
        title="Class",
        description="One of the `classes` of tables: what trails have sealed of it stays readable. Instead of `table`.",
    )
    until: _Day = Field(title="Until", description="The first day on which it may go.")
    basis: _Text = Field(title="Basis", description="Why it has to stay; it stands in the certificate.")


class Erasure(Model):
    """Whose data are where, and what may not go yet."""

    state: ErasureState = Field(title="State", description="Where the requests and what became of them are kept.")
    signing_key: Annotated[SecretStr, AfterValidator(_key)] | None = Field(
        default=None,
        title="Signing key",
        description="The private key of `deltarelay erase keygen`, best as ${file:/run/secrets/erasure.key}. It signs "
        "certificates. The seal key and the watch key are derived from it too; with `seal_key` and `watch_key` these are "
        "former keys. A machine that only runs pipelines needs no signing key, but `watch_key`.",
    )
    watch_key: _WatchKey | None = Field(
        default=None,
        title="Watch key",
        description="The key by which pipelines recognise erased people, of `deltarelay erase split-keys`; all that a "
        "machine which only runs pipelines needs of this block's keys.",
    )
    former_watch_keys: tuple[_WatchKey, ...] = Field(
        default=(),
        title="Former watch keys",
        description="Those that were `watch_key` before. Keep each for `watch_days` after it was replaced, and until every "
        "request of its time is certified.",
    )
    seal_key: _SealKey | None = Field(
        default=None,
        title="Seal key",
        description="The key that encrypts identifiers in the state, of `deltarelay erase split-keys`. Needs `watch_key`.",
    )
    former_seal_keys: tuple[_SealKey, ...] = Field(
        default=(),
        title="Former seal keys",
        description="Those that were `seal_key` before. Keep each until every request of its time is certified.",
    )
    key_registry: ErasureKeys | None = Field(
        default=None,
        alias="keys",
        title="Keys",
        description="The registry of the keys that personal columns are sealed by.",
    )
    subjects: dict[_Text, ErasureSubject] = Field(
        min_length=1, title="Subjects", description="The kinds of people, by a name of your choice."
    )
    tables: Annotated[dict[_Address, ErasureTable], BeforeValidator(_each_once)] = Field(
        min_length=1,
        title="Tables",
        description="The Delta tables with rows of subjects, by path, URL or catalog name. A relative path starts at the "
        "folder of this file.",
    )
    holds: tuple[ErasureHold, ...] = Field(
        default=(),
        title="Holds",
        description="Tables whose rows have to stay until a day, or classes whose keys do, and why.",
    )
    approve_above: _Rows = Field(
        default=10_000,
        title="Approve above",
        description="A request that reaches more rows of one table than this is not run before it has an approver; nor is, "
        "whatever this says, one that leads to several values of a `path` or to more than ten further identifiers.",
    )
    watch_days: _Rows = Field(
        default=365,
        title="Watch (days)",
        description="So long after an erasure pipelines stop where the person comes back; as long as backups live.",
    )
    on_return: OnReturn = Field(
        default="stop",
        title="On return",
        description="Where an erased person is back in a table: `stop` its pipelines before those rows are applied, or "
        "`leave_out` these rows and go on; either way it is logged as an error, and `erase status` shows it.",
    )
    out_of_reach: tuple[_Text, ...] = Field(
        default=(),
        title="Out of reach",
        description="Copies that nobody here can remove, such as backups, and when they go: told in each certificate.",
    )

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.signing_key is None and self.watch_key is None:
            raise ValueError("needs signing_key or, on a machine that only runs pipelines, watch_key")
        if (self.watch_key is None) and (self.seal_key is not None or self.former_watch_keys):
            raise ValueError("needs watch_key beside seal_key or former_watch_keys")
        if self.former_seal_keys and self.seal_key is None:
            raise ValueError("needs seal_key beside former_seal_keys")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _fits_together(cls, data: Any, handler: ModelWrapValidatorHandler[Erasure], info: ValidationInfo) -> Erasure:
        made = handler(data)
        problems: list[Any] = []
        try:
            graph = made.graph()
        except ConfigError as fault:
            problems = fault.fields["problems"]
        else:
            encrypted = [one.table for one in graph.order if graph.encrypted_people(one.table)]
            sealed = encrypted if made.key_registry is None else []
            message = "needs `erasure.keys`, the registry of the keys that the columns are sealed by"
            problems = [{"place": ["tables", table, "classes"], "message": message} for table in sealed]
        if not problems:
            return made
        # the file may write an address in another way than we do
        tables = data["tables"] if isinstance(data, dict) else made.tables
        written = {resolve_table(str(key), _folder(info)): key for key in tables}
        parts = [
            (tuple(written.get(step, step) for step in problem["place"]), problem["message"]) for problem in problems
        ]
        text = "; ".join(f"{'.'.join(map(str, place))}: {message}" for place, message in parts)
        raise PydanticCustomError("erasure", "{text}", {"text": text, PARTS: parts})

    def graph(self) -> Graph:
        subjects = {name: Subject(name, dict(one.identifiers)) for name, one in self.subjects.items()}
        tables = [
            PersonalTable(
                address,
                one.subject,
                parse_path(one.path),
                one.personal,
                one.on_erase,
                tuple(
                    PersonalTable(
                        address,
                        other.subject or one.subject,
                        parse_path(other.path),
                        other.personal,
                        other.on_erase,
                        classes=tuple(other.classes.items()),
                    )
                    for other in one.others
                ),
                tuple(one.classes.items()),
            )
            for address, one in self.tables.items()
        ]
        return Graph.of(subjects, tables, [Hold(one.table, one.until, one.basis, one.class_name) for one in self.holds])

    def signer(self) -> Signer:
        """Raises ConfigError where there is none."""
        if self.signing_key is None:
            raise ConfigError(
                "erasing people needs the key that signs certificates, and only pipelines can be run here",
                hint="set erasure.signing_key, or run the command where it is set",
            )
        return Signer.parse(self.signing_key.get_secret_value())

    def keys(self) -> Keys:
        """Of the state. Raises ConfigError where only pipelines can be run."""
        seals = [SealKey.parse(one.get_secret_value()) for one in _several(self.seal_key, self.former_seal_keys)]
        return Keys(None if self.signing_key is None else self.signer(), watch=self._watch_keys(), seal=seals)

    def marker(self) -> Marker:
        """All that pipelines need."""
        derived = [] if self.signing_key is None else [WatchKey.of(self.signer())]
        return Marker.of([*self._watch_keys(), *derived])

    def _watch_keys(self) -> list[WatchKey]:
        return [WatchKey.parse(one.get_secret_value()) for one in _several(self.watch_key, self.former_watch_keys)]


def _several(first: SecretStr | None, others: Sequence[SecretStr]) -> list[SecretStr]:
    return [*([] if first is None else [first]), *others]

"""The ``erasure`` block of the configuration: personal data, retention, and where the erasure state is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, SecretStr, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from audit.erasure.model import Hold, OnErase, OnReturn, PersonalTable, Subject
from audit.erasure.register.secrets import Keys, Marker, SealKey, WatchKey
from audit.erasure.table_graph import Graph, parse_path
from audit.identifiers import Spelling
from audit.signing.signer import Signer
from cdf.errors import ConfigError
from infra.base_model import Model
from infra.config.erasure_values import (
    Address,
    ColumnClasses,
    Columns,
    Day,
    NonEmptyText,
    PersonPath,
    RootKeyText,
    RowCount,
    SchemaName,
    SealKeyText,
    SigningKeyText,
    WatchKeyText,
    check_spellings,
)
from infra.config.values import folder_of, resolve_table

__all__ = [
    "PARTS",
    "Erasure",
    "ErasureHold",
    "ErasureKeys",
    "ErasureState",
    "ErasureSubject",
    "ErasureTable",
    "OtherSubject",
]

PARTS = "parts"
"""In the context of a custom error: the settings below it that are wrong, each with its message."""
_SETTINGS = {"path": "identified_by", "others": "other_subjects"}
"""Fields of ``audit.erasure.model``, and the settings that they come from."""


class ErasureState(Model):
    """Where requests, steps and certificates are stored."""

    connection: str = Field(title="Connection", description="The name of a connection of kind postgres.")
    schema_name: SchemaName = Field(
        default="erasure",
        alias="schema",
        title="Schema",
        description="The schema of the tables; created where it is missing.",
    )
    identity: NonEmptyText | None = Field(
        default=None,
        title="Identity",
        description="The identity of the register, as `deltarelay erase init` prints it. Commands and pipelines refuse to "
        "work with any other register, such as an empty one in its place.",
    )


class ErasureKeys(Model):
    """Where the keys of persons are stored, and the root key that decrypts them."""

    connection: str = Field(
        title="Connection",
        description="The name of a connection of kind postgres; preferably a separate database with backups of its own.",
    )
    schema_name: SchemaName = Field(
        default="keys",
        alias="schema",
        title="Schema",
        description="The schema of the tables; created where it is missing.",
    )
    root_key: RootKeyText = Field(
        title="Root key",
        description="The key created by `deltarelay keys new-root`, preferably as ${file:/run/secrets/root.key}; or "
        "aws_kms:ARN, for a key in AWS KMS, with the credentials of `storage.s3`. Without it every encrypted value is lost.",
    )


class ErasureSubject(Model):
    """A kind of person."""

    identifiers: dict[NonEmptyText, Spelling] = Field(
        min_length=1,
        title="Identifiers",
        description="What identifies such a person in a request, and how two values are compared: `exact`, or `email` "
        "(ignoring case, surrounding blanks, and the Unicode composition of characters).",
    )


class OtherSubject(Model):
    """A further person whom the rows of a table name."""

    subject: str | None = Field(
        default=None,
        title="Subject",
        description="The name of an entry under `subjects`; by default the subject of the table.",
    )
    identified_by: PersonPath = Field(
        title="Identified by",
        description="How a row identifies this person, as in `identified_by` of the table.",
    )
    personal: Columns = Field(
        default=(),
        title="Personal columns",
        description="Columns with data of this person; `nullify` sets them to NULL.",
    )
    on_erase: OnErase = Field(
        default="nullify",
        title="On erase",
        description="`nullify` the personal columns, or `delete` the rows, including what they say about other people.",
    )
    classes: ColumnClasses = Field(
        default={},
        title="Classes",
        description="Columns with data of this person that audit trails encrypt, as in `classes` of the table.",
    )


class ErasureTable(Model):
    """A table with rows of a subject."""

    subject: str = Field(title="Subject", description="The name of an entry under `subjects`.")
    identified_by: PersonPath = Field(
        title="Identified by",
        description="How a row identifies the person: a column with an identifier of the subject; or "
        "`column -> table.column`, where the column refers to a row of another of these tables.",
    )
    personal: Columns = Field(
        default=(),
        title="Personal columns",
        description="Columns with personal data; `nullify` sets them to NULL.",
    )
    on_erase: OnErase = Field(
        default="delete",
        title="On erase",
        description="`delete` the rows, or `nullify` their personal columns where the rest of the row is still needed.",
    )
    classes: ColumnClasses = Field(
        default={},
        title="Classes",
        description="Columns that audit trails encrypt, by a name of your choice such as `contact`. Each person has one key "
        "per class, which an erasure destroys. Needs `keys`.",
    )
    other_subjects: tuple[OtherSubject, ...] = Field(
        default=(),
        title="Other subjects",
        description="Further people whom a row names, such as the recipient beside the sender. Links from other tables "
        "refer to the first person only.",
    )


class ErasureHold(Model):
    """What must be retained: the rows of a table, or the keys of a class."""

    table: Address | None = Field(
        default=None, title="Table", description="One of `tables`, whose rows must be retained."
    )
    class_name: NonEmptyText | None = Field(
        default=None,
        alias="class",
        title="Class",
        description="One of the `classes` of tables, whose encrypted values stay readable. Instead of `table`.",
    )
    until: Day = Field(title="Until", description="The first day on which erasing is allowed.")
    basis: NonEmptyText = Field(
        title="Basis", description="The legal basis for retaining it; printed in the certificate."
    )


class Erasure(Model):
    """Which tables hold personal data, and what must be retained."""

    state: ErasureState = Field(title="State", description="Where requests, steps and certificates are stored.")
    signing_key: SigningKeyText | None = Field(
        default=None,
        title="Signing key",
        description="The private key created by `deltarelay erase keygen`, preferably as ${file:/run/secrets/erasure.key}. "
        "It signs certificates. The seal key and the watch key are derived from it unless `seal_key` and `watch_key` are "
        "set; then the derived keys count as former keys. A machine that only runs pipelines needs `watch_key` instead.",
    )
    watch_key: WatchKeyText | None = Field(
        default=None,
        title="Watch key",
        description="The key by which pipelines recognise erased people, created by `deltarelay erase split-keys`. A "
        "machine that only runs pipelines needs no other key of this block.",
    )
    former_watch_keys: tuple[WatchKeyText, ...] = Field(
        default=(),
        title="Former watch keys",
        description="Earlier values of `watch_key`. Keep each for `watch_days` after its replacement, and until every "
        "request of its time is certified.",
    )
    seal_key: SealKeyText | None = Field(
        default=None,
        title="Seal key",
        description="The key that encrypts identifiers in the state, created by `deltarelay erase split-keys`. Needs "
        "`watch_key`.",
    )
    former_seal_keys: tuple[SealKeyText, ...] = Field(
        default=(),
        title="Former seal keys",
        description="Earlier values of `seal_key`. Keep each until every request of its time is certified.",
    )
    key_registry: ErasureKeys | None = Field(
        default=None,
        alias="keys",
        title="Keys",
        description="The registry of the keys that encrypt personal columns.",
    )
    subjects: dict[NonEmptyText, ErasureSubject] = Field(
        min_length=1, title="Subjects", description="The kinds of people, by a name of your choice."
    )
    tables: Annotated[dict[Address, ErasureTable], BeforeValidator(check_spellings)] = Field(
        min_length=1,
        title="Tables",
        description="The Delta tables with rows of subjects, by path, URL or catalog name. A relative path starts at the "
        "folder of this file.",
    )
    holds: tuple[ErasureHold, ...] = Field(
        default=(),
        title="Holds",
        description="Tables whose rows, or classes whose keys, must be retained until a day, and why.",
    )
    approve_above: RowCount = Field(
        default=10_000,
        title="Approve above",
        description="A request that reaches more rows of one table than this needs an approver. A request that leads to "
        "several values of an `identified_by` column, or to more than ten further identifiers, needs one for any number of "
        "rows.",
    )
    watch_days: RowCount = Field(
        default=365,
        title="Watch (days)",
        description="For how many days after an erasure pipelines stop when the person reappears; set it to the lifetime of "
        "backups.",
    )
    on_return: OnReturn = Field(
        default="stop",
        title="On return",
        description="When an erased person reappears in a table: `stop` its pipelines before those rows are applied, or "
        "`leave_out` these rows and continue. Both log an error, and `erase status` shows it.",
    )
    out_of_reach: tuple[NonEmptyText, ...] = Field(
        default=(),
        title="Out of reach",
        description="Copies that deltarelay cannot remove, such as backups, and when they expire; listed in each "
        "certificate.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.signing_key is None and self.watch_key is None:
            raise ValueError("needs signing_key or, on a machine that only runs pipelines, watch_key")
        if (self.watch_key is None) and (self.seal_key is not None or self.former_watch_keys):
            raise ValueError("needs watch_key beside seal_key or former_watch_keys")
        if self.former_seal_keys and self.seal_key is None:
            raise ValueError("needs seal_key beside former_seal_keys")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _check_graph(cls, data: Any, handler: ModelWrapValidatorHandler[Erasure], info: ValidationInfo) -> Erasure:
        erasure = handler(data)
        problems: list[Any] = []
        try:
            graph = erasure.graph()
        except ConfigError as error:
            problems = error.fields["problems"]
        else:
            without_registry = erasure.key_registry is None
            tables = [one.table for one in graph.order if graph.encrypted_people(one.table)] if without_registry else []
            message = "needs `erasure.keys`, the registry of the keys that encrypt these columns"
            problems = [{"place": ["tables", table, "classes"], "message": message} for table in tables]
        if not problems:
            return erasure
        # the file may spell an address in another way
        written = data["tables"] if isinstance(data, dict) else erasure.tables
        keys = {resolve_table(str(key), folder_of(info)): key for key in written}
        parts = [(_to_settings(problem["place"], keys), problem["message"]) for problem in problems]
        text = "; ".join(f"{'.'.join(map(str, place))}: {message}" for place, message in parts)
        raise PydanticCustomError("erasure", "{text}", {"text": text, PARTS: parts})

    def graph(self) -> Graph:
        subjects = {name: Subject(name, dict(one.identifiers)) for name, one in self.subjects.items()}
        tables = [_to_personal_table(address, table) for address, table in self.tables.items()]
        return Graph.of(subjects, tables, [Hold(one.table, one.until, one.basis, one.class_name) for one in self.holds])

    def signer(self) -> Signer:
        """Raises ConfigError where no signing key is configured."""
        if self.signing_key is None:
            raise ConfigError(
                "erasing people needs the key that signs certificates; this configuration is for running pipelines only",
                hint="set erasure.signing_key, or run the command where it is set",
            )
        return Signer.parse(self.signing_key.get_secret_value())

    def keys(self) -> Keys:
        """The keys of the state. Raises ConfigError where the configuration is for running pipelines only."""
        seals = [SealKey.parse(one.get_secret_value()) for one in _join(self.seal_key, self.former_seal_keys)]
        return Keys(None if self.signing_key is None else self.signer(), watch=self._watch_keys(), seal=seals)

    def marker(self) -> Marker:
        """The keys that pipelines need."""
        derived = [] if self.signing_key is None else [WatchKey.of(self.signer())]
        return Marker.of([*self._watch_keys(), *derived])

    def _watch_keys(self) -> list[WatchKey]:
        return [WatchKey.parse(one.get_secret_value()) for one in _join(self.watch_key, self.former_watch_keys)]


def _to_personal_table(address: str, table: ErasureTable) -> PersonalTable:
    further = tuple(
        PersonalTable(
            address,
            one.subject or table.subject,
            parse_path(one.identified_by),
            one.personal,
            one.on_erase,
            classes=tuple(one.classes.items()),
        )
        for one in table.other_subjects
    )
    path, classes = parse_path(table.identified_by), tuple(table.classes.items())
    return PersonalTable(address, table.subject, path, table.personal, table.on_erase, further, classes)


def _to_settings(place: Sequence[str | int], keys: Mapping[str, str]) -> tuple[str | int, ...]:
    """A place of ``audit.erasure.table_graph`` as settings. ``keys``: the addresses of tables as the file spells them."""
    if place[0] != "tables":
        return tuple(keys.get(str(step), step) for step in place)
    top, address, *steps = place
    # the names of classes, at other indexes, are the user's
    named = [_SETTINGS.get(str(step), step) if index in (0, 2) else step for index, step in enumerate(steps)]
    return top, keys.get(str(address), address), *named


def _join(current: SecretStr | None, former: Sequence[SecretStr]) -> list[SecretStr]:
    return [*([] if current is None else [current]), *former]

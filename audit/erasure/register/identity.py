"""The identity of a register: which register it is, whether it is complete, and which watch key its marks are made with."""

from __future__ import annotations

from audit.database import MissingTables, Transaction
from audit.erasure.register.part import RegisterPart, associated_data, list_ids
from audit.erasure.register.schema import LATER, MIGRATIONS, TABLES
from audit.erasure.register.secrets import MarkKeys, RegisterKeys
from cdf.errors import CdfError, ConfigError

__all__ = ["RegisterIdentity", "RegisterIncomplete", "RegisterMismatch", "RegisterMissing"]


class RegisterMissing(ConfigError):
    """The database is reachable and has no register there: it was never created, was dropped, or the schema is misspelt."""

    code = "erasure_register_missing"


class RegisterIncomplete(ConfigError):
    """Tables of the register are missing."""

    code = "erasure_register_incomplete"


class RegisterMismatch(ConfigError):
    """The register is not the one that the configuration names, or its marks were made with other keys."""

    code = "erasure_register_mismatch"


class RegisterIdentity(RegisterPart):
    def prepare(self) -> None:
        """Create the schema and its missing tables. May be called again, also by two processes at once.

        Raises RegisterIncomplete where a register exists and has lost a table: a new table would be empty, and every erased
        person would be unknown.
        """
        self._check_complete(self._database.find_missing(), adds_later=True)
        self._database.prepare()

    def find_pending(self) -> tuple[str, ...] | None:
        """The statements that ``prepare`` would run; None where there is no register. Raises RegisterIncomplete."""
        self._check_complete(self._database.find_missing(), adds_later=True)
        return self._database.find_pending()

    def bind(self, keys: RegisterKeys, signed_by: str | None = None) -> str:
        """Record which watch key makes the marks, and return the register's identity. ``signed_by``: id of the signing key.

        Raises RegisterMismatch where the recorded key is neither the current nor a former one."""
        with self._database.transaction() as work:
            identity, made_with = self._read_identity(work)
            if made_with is None:
                first = work.row("select id, sealed from {request} where sealed is not null limit 1")
                if first is not None:
                    try:  # a register of an earlier version: only its keys can decrypt the requests
                        keys.decrypt(first[1], about=associated_data(first[0]))
                    except CdfError:
                        raise self._mismatched_keys() from None
                else:  # all identifiers are deleted; the keys were derived from the key that signed the certificates
                    last = work.row(
                        "select document -> 'signature' ->> 'id' from {certificate} order by issued_at desc limit 1"
                    )
                    if last not in (None, (signed_by,)):
                        raise self._mismatched_keys()
            elif made_with not in keys.marks("register", identity):
                raise self._mismatched_keys()
            mark = keys.mark("register", identity)
            work.execute(
                "update {register} set keys = %s where keys is not distinct from %s and keys is distinct from %s",
                [mark, made_with, mark],
            )
            if self._read_identity(work)[1] not in keys.marks("register", identity):  # another process was faster
                raise self._mismatched_keys()
        return identity

    def check(self, keys: MarkKeys, identity: str | None = None) -> None:
        """Raises unless the register exists, is complete, has this ``identity`` and was made with these keys. Otherwise its
        answers would mean that no one was erased."""
        missing = self._database.find_missing()
        if len(missing.tables) == len(TABLES):
            raise RegisterMissing(
                f"{self._database.name} is not in the database",
                hint="check `erasure.state` (connection, schema); restore the register from its backup if it was lost; if "
                "there never was one, `deltarelay erase init` creates it",
            )
        self._check_complete(missing)
        with self._database.transaction() as work:
            found, made_with = self._read_identity(work)
            is_used = work.row("select from {request} limit 1") is not None
        if identity not in (None, found):
            raise RegisterMismatch(
                f"{self._database.name} is not the register that `erasure.state.identity` names",
                hint="check `erasure.state` (connection, schema, identity), and whether the database was replaced",
            )
        if made_with is None and is_used:
            raise RegisterIncomplete(
                f"{self._database.name} was made by an earlier version", hint="`deltarelay erase init` completes it"
            )
        if made_with is not None and made_with not in keys.marks("register", found):
            raise self._mismatched_keys()

    def _read_identity(self, work: Transaction) -> tuple[str, bytes | None]:
        found = work.row("select identity, keys from {register}")
        if found is None:
            raise RegisterIncomplete(f"{self._database.name} has lost its identity", hint="restore it from its backup")
        return found[0], found[1]

    def _check_complete(self, missing: MissingTables, *, adds_later: bool = False) -> None:
        """``adds_later``: the caller adds what a register of an earlier release does not have."""
        is_old = missing.version < len(MIGRATIONS)
        lost = sorted(set(missing.tables) - (LATER if is_old and adds_later else set()))
        exists = missing.version > 0 or len(missing.tables) < len(TABLES)
        if exists and lost:
            is_old = is_old and set(lost) <= LATER
            raise RegisterIncomplete(
                f"{self._database.name} has no table {list_ids(lost)}",
                hint="`deltarelay erase init` adds what this version needs" if is_old else "restore it from its backup",
            )

    def _mismatched_keys(self) -> RegisterMismatch:
        return RegisterMismatch(
            f"the marks of {self._database.name} were made with other keys than the configured ones: no person would be "
            "recognised",
            hint="set `watch_key` or `signing_key` to the key with which the register was created; a key that was replaced "
            "belongs in `former_watch_keys`",
        )

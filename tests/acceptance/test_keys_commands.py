"""`deltarelay keys`: the registry of the keys of persons is made, backed up, checked, and wrapped anew; no JVM."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from audit.encryption.key_registry import Registry
from audit.encryption.key_registry.bindings import lookup_key_binding
from audit.encryption.root_keys import FileRoot
from audit.erasure.register.secrets import SealKey, WatchKey
from audit.signing.signer import Signer
from tests.acceptance.commands import Done, Project

ANNA, BOB = [("customer_id", "7")], [("customer_id", "8")]


class Safe:
    def __init__(self, project: Project) -> None:
        self.project, self.folder = project, project.folder
        Signer.generate("example.org/erasure").write(self.folder / "erasure.key")
        assert self.run("new-root", "root.key").code == 0
        self.configure("root.key")

    def configure(self, root: str) -> None:
        one = {
            "source": {"table": "customers", "key": ["customer_id"]},
            "sink": {"connection": "warehouse", "table": "c"},
        }
        erasure = {
            "state": {"connection": "warehouse"},
            "keys": {"connection": "warehouse", "root_key": f"${{file:{root}}}"},
            "signing_key": "${file:erasure.key}",
            "subjects": {"customer": {"identifiers": {"customer_id": "exact"}}},
            "tables": {"customers": {"subject": "customer", "identified_by": "customer_id"}},
        }
        self.project.write({"customers": one}, rest=f"erasure: {json.dumps(erasure)}")

    def run(self, *words: str) -> Done:
        done = self.project.run("keys", *words)
        for file in self.folder.glob("root*.key"):
            assert file.read_text().strip() not in done.out + done.err
        return done

    def registry(self, root: str) -> Registry:
        return Registry(self.project.database.dsn, FileRoot.parse((self.folder / root).read_text()), schema="keys")

    def key(self, person: list[tuple[str, str]], root: str = "root.key") -> bytes:
        registry = self.registry(root)
        [token] = registry.find_or_create_tokens("customer", [person])
        assert token is not None
        return registry.find_or_create_keys([(token, "contact")])[token, "contact"].key

    def shred(self, person: list[tuple[str, str]], root: str = "root.key") -> None:
        registry = self.registry(root)
        [token] = registry.find_tokens("customer", [person])
        assert token is not None
        registry.destroy_keys([token], run="er-1")

    def read(self, purpose: str) -> None:
        self.registry("root.key").open_reading(trail="trail", reader="r", purpose=purpose, question="history")([])

    def restore(self, file: str) -> None:
        """What ``psql`` does with the file, by the statements and rows in it."""
        lines = (self.folder / file).read_text().splitlines(keepends=True)
        with psycopg.connect(self.project.database.dsn, autocommit=True) as connection:
            connection.execute("drop schema keys cascade")
            statement, at = "", 0
            while at < len(lines):
                line, at = lines[at], at + 1
                if line.startswith("copy "):
                    end = lines.index("\\.\n", at)
                    with connection.cursor() as cursor, cursor.copy(line.rstrip().rstrip(";")) as copy:  # type: ignore[call-overload]
                        copy.write("".join(lines[at:end]))
                    at = end + 1
                elif not line.startswith("--"):
                    statement += line
                    if line.endswith(";\n"):
                        connection.execute(statement)  # type: ignore[call-overload]
                        statement = ""


@pytest.fixture
def safe(project: Project) -> Safe:
    return Safe(project)


def test_from_the_first_key_to_the_next_epoch(safe: Safe) -> None:
    assert (safe.folder / "root.key").stat().st_mode & 0o077 == 0
    again = safe.run("new-root", "root.key")
    assert (again.code, "already exists" in again.err) == (2, True)
    early = safe.run("status")
    assert (early.code, "deltarelay keys init" in early.err) == (2, True)
    assert [safe.run("init", "--json").document["result"]["epoch"] for _ in range(2)] == [1, 1]
    anna, bob = safe.key(ANNA), safe.key(BOB)
    safe.read("before")

    assert safe.run("backup", "monday.sql").code == 0
    backup = safe.folder / "monday.sql"
    assert backup.stat().st_mode & 0o077 == 0
    assert anna.hex() not in backup.read_text()
    assert safe.run("backup", "monday.sql").code == 2
    done = safe.run("restore-check", "monday.sql", "--json")
    assert (done.code, done.document["result"]["living"], done.document["result"]["brings_back"]) == (0, 2, 0)

    safe.shred(ANNA)
    carl = safe.key([("customer_id", "9")])
    done = safe.run("restore-check", "monday.sql", "--json")
    result = done.document["result"]
    assert (done.code, result["brings_back"], result["loses"], result["unknown"]) == (3, 1, 1, 0)
    assert "bring erased people back" in safe.run("restore-check", "monday.sql").out

    # A day later nobody has the old root key any more
    assert safe.run("new-root", "root-2.key").code == 0
    rotated = safe.run("rotate", "--to", "root-2.key", "--destroyed-on", "2026-12-01", "--json")
    assert (rotated.code, rotated.document["result"]["keys"]) == (0, 2), rotated.err
    stale = safe.run("init")
    assert (stale.code, "is configured" in stale.err) == (2, True)
    safe.configure("root-2.key")
    status = safe.run("status")
    assert "unreadable from 2026-12-01 on" in status.out
    assert (safe.key(BOB, "root-2.key"), safe.key([("customer_id", "9")], "root-2.key")) == (bob, carl)
    refused = safe.run("restore-check", "monday.sql")
    assert (refused.code, "under another" in refused.err or "under the root key" in refused.err) == (2, True)

    # Restored all the same, it opens by the old root key alone
    safe.restore("monday.sql")
    assert safe.run("status").code == 0
    with pytest.raises(Exception, match="root key"):
        safe.key(BOB, "root-2.key")
    assert safe.key(ANNA) == anna  # why the old root key has to go
    safe.read("after")  # what a restored registry numbers goes on from what it had
    assert [(one.id, one.purpose) for one in safe.registry("root.key").list_new_readings("trail")] == [
        (1, "before"),
        (2, "after"),
    ]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], "is truncated"),
        (lambda text: text.replace(b"\\\\x", b"\\\\x0", 1), "was altered after it was written"),
        (lambda _: b"select 1;\n", "is not a backup"),
        (lambda text: text.replace(b"commit;\n", b"\\! touch here\ncommit;\n"), "was altered after it was written"),
        (lambda text: text.replace(b"backup v2", b"backup v1", 1), "is a backup of another release"),
    ],
    ids=["cut off", "altered", "something else", "hostile", "former"],
)
def test_a_backup_that_is_none(safe: Safe, spoil: object, said: str) -> None:
    assert callable(spoil)
    assert safe.run("init").code == 0
    safe.key(ANNA)
    assert safe.run("backup", "b.sql").code == 0
    file = safe.folder / "b.sql"
    file.write_bytes(spoil(file.read_bytes()))
    done = safe.run("restore-check", "b.sql")
    assert done.code in (1, 2, 3)
    assert done.code != 0
    assert said in done.err


def test_a_registry_of_an_earlier_release(safe: Safe) -> None:
    assert safe.run("init").code == 0
    anna = safe.key(ANNA)
    with psycopg.connect(safe.project.database.dsn, autocommit=True) as connection:
        connection.execute("alter table keys.identifier drop column mac, drop column epoch")
        connection.execute("alter table keys.epoch drop column mac")
        refused = safe.run("upgrade")  # of this release: its links may have been altered since
        assert (refused.code, "the MACs of the key registry are missing" in refused.err) == (1, True)
        found = connection.execute("select wrapped from keys.lookup_key").fetchone()
        root = FileRoot.parse((safe.folder / "root.key").read_text())
        assert found is not None
        lookup_key = root.unwrap(found[0], context=lookup_key_binding(1))
        former = root.wrap(lookup_key, context="deltarelay lookup key 1")
        connection.execute("update keys.lookup_key set wrapped = %s", [former])
    for words in (("init",), ("backup", "b.sql")):
        refused = safe.run(*words)
        assert (refused.code, "deltarelay keys upgrade" in refused.err) == (2, True), words
    upgraded = safe.run("upgrade", "--json")
    assert (upgraded.code, upgraded.document["result"]["links"]) == (0, 1)
    assert safe.key(ANNA) == anna
    assert safe.run("backup", "b.sql").code == 0
    assert safe.run("restore-check", "b.sql").code == 0


def test_the_keys_of_an_erasure_are_split(safe: Safe) -> None:
    folder, signer = safe.folder, Signer.parse((safe.folder / "erasure.key").read_text())
    (folder / "apart").mkdir()
    assert safe.project.run("erase", "split-keys", "apart").code == 0
    for name, kind in (("watch", WatchKey), ("seal", SealKey)):
        file = folder / "apart" / f"{name}.key"
        assert file.stat().st_mode & 0o077 == 0
        assert kind.parse(file.read_text()) == kind.of(signer)  # what was made before stays valid
    again = safe.project.run("erase", "split-keys", "apart")
    assert (again.code, "already exists" in again.err) == (2, True)
    (folder / "new").mkdir()
    made = safe.project.run("erase", "split-keys", "new", "--new", "--json").document["result"]
    assert made["watch_key"] == WatchKey.parse((folder / "new" / "watch.key").read_text()).id != WatchKey.of(signer).id
    # A machine that has the watch key alone can erase nobody, and says what it needs
    file, signing = folder / "deltarelay.yaml", '"signing_key": "${file:erasure.key}"'
    file.write_text(file.read_text().replace(signing, '"watch_key": "${file:apart/watch.key}"'))
    refused = safe.project.run("erase", "split-keys", "apart")
    assert (refused.code, "erasure.signing_key" in refused.err) == (2, True)
    assert safe.run("init").code == 0


def test_what_is_asked_wrongly(safe: Safe, tmp_path: Path) -> None:
    assert safe.run("init").code == 0
    for words, said in (
        (("rotate", "--to", "root.key"), "a root key of its own"),
        (("rotate", "--to", "nowhere.key"), "cannot be read"),
        (("rotate", "--to", "erasure.key"), "is not a valid root key"),
        (("rotate", "--to", "root.key", "--retire-after", "7"), "you must destroy a root key in a file yourself"),
        (("root-gone", "file:00000000", "2026-12-01"), "no finished epoch"),
        (("root-gone", "file:00000000", "soon"), "is not a date"),
        (("backup", str(tmp_path / "no" / "where.sql")), "cannot be written"),
        (("restore-check", "nothing.sql"), "cannot be read"),
    ):
        done = safe.run(*words)
        assert (done.code, said in done.err) == (2, True), (words, done.err)

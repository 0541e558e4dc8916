"""What an earlier release has left, a target, a trail and a register, is taken over by this one and goes on."""

from __future__ import annotations

import tarfile
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.acceptance.commands import Project, change
from tests.acceptance.in_process import Command, here
from tests.upgrade.make_state import ARCHIVE, DUMP, PROJECT, psql

__all__ = ["here"]  # a fixture

STATES = Path(__file__).parents[1] / "upgrade"


@pytest.fixture(params=sorted(path.name for path in STATES.glob("state-*")))
def left(project: Project, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project of an earlier release, in a folder and a database of the test's own."""
    # Another run of this test continues the same trail with other records
    monkeypatch.setenv("XDG_STATE_HOME", str(project.folder / "verified"))
    state = STATES / request.param
    with tarfile.open(state / ARCHIVE) as archive:
        archive.extractall(project.folder, filter="data")
    dump = (state / DUMP).read_text().replace(PROJECT, str(project.folder))
    psql(project.database.dsn, dump)
    return project


def test_a_state_of_an_earlier_release_is_continued(left: Project, here: Command, spark: SparkSession) -> None:
    def positions() -> dict[str, int]:
        return {one["pipeline"]: one["position"] for one in here("status", "--json").document["result"]["pipelines"]}

    def decrypted(number: int) -> list[str]:
        shown = here(
            "audit", "history", "trail", "--key", f"no={number}", "--decrypt", "--purpose", "a test", "--format", "json"
        )
        assert shown.code == 0, shown.err
        return [row["row.email"] for row in shown.document["result"]["rows"]]

    def count_epoch_keys() -> int:
        with psycopg.connect(left.database.dsn) as connection:
            (count,) = connection.execute("select count(*) from keys.shard").fetchall()[0]
        return int(count)

    orders, customers = (str(left.folder / "tables" / name) for name in ("orders", "customers"))
    change(spark, orders, "insert into {t} values (4, 'four', 4.40)")
    change(spark, customers, "insert into {t} values (4, 10, 'dora@example.org', 'd', null)")
    done = here("run")
    assert done.code == 0, done.err
    latest = DeltaTable(customers).version()
    assert positions() == {"orders": DeltaTable(orders).version(), "customers": latest, "trail": latest}

    entries = {one["pipeline"]: one for one in here("verify", "--json").document["result"]["pipelines"]}
    assert (entries["orders"]["equal"], entries["orders"]["set_aside"]) == (True, 1)
    assert entries["customers"]["equal"]
    # That release removed the delete of an erased record whose encrypted row it left: two records look as if they were there
    trail = entries["trail"]
    assert (trail["missing"], trail["different"], trail["duplicate"], trail["extra"]) == (0, 0, 0, 2)
    intact = here("audit", "verify")
    assert intact.code == 0, intact.err
    assert decrypted(1)[-1] == "anna@example.org"
    assert all(email.startswith("[erased ") for email in decrypted(2))
    assert decrypted(4) == ["dora@example.org"]
    assert count_epoch_keys() == 256
    assert here("keys", "new-root", "root-2.key").code == 0
    rotated = here("keys", "rotate", "--to", "root-2.key")
    assert rotated.code == 0, rotated.err
    assert count_epoch_keys() == 1
    (left.folder / "root-2.key").replace(left.folder / "root.key")
    assert (decrypted(1)[-1], decrypted(4)) == ("anna@example.org", ["dora@example.org"])

    certified = here("erase", "status", "--json").document["result"]["requests"]
    assert {one["id"]: one["state"] for one in certified} == {"DSR-1": "certified", "DSR-2": "certified"}
    change(spark, customers, "insert into {t} values (2, 8, 'bert@example.org', 'b', null)")
    refused = here("run", "-p", "customers")
    assert (refused.code != 0, "erased" in refused.err, "bert" in refused.err) == (True, True, False), refused.err

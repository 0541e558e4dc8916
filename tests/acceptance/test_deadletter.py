"""``deltarelay deadletter``: rows that could not be stored are listed, shown, tried again and forgotten."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline

TARGET = "public.customers"
CANARY = "xanadu"


@pytest.fixture
def filled(project: Project, database: Database, spark: SparkSession) -> str:
    """A target at version 2 that lacks two of the source's four rows. → the source"""
    path = str(project.folder / "source")
    create_source(spark, path)
    change(spark, path, "insert into {t} values (1, 'fine', 1), (2, 'fine', 2)")
    change(spark, path, f"insert into {{t}} values (3, '{CANARY}', 3), (4, concat('{CANARY}', char(0)), 4)")
    settings = pipeline(path, table=TARGET, start=1)
    settings["sink"] |= {"rejects": "dead_letter", "reject_rows": True}
    project.write({"customers": settings})
    database.query(
        "create table public.customers (id bigint primary key, name text constraint short check (length(name) < 6), "
        "amount numeric(10,2))"
    )
    return path


def test_from_the_first_rejected_row_to_the_last(
    project: Project, database: Database, spark: SparkSession, filled: str
) -> None:
    # ── run goes on, and says what it has set aside
    done = project.run("run")
    assert done.code == 0, done.err
    assert "version 2: 2 inserts" in done.err
    assert "2 rows of them dead-lettered" in done.err
    assert "2 rows dead-lettered: `deltarelay deadletter list`" in done.out
    assert CANARY not in done.out + done.err
    assert database.position() == 2

    # ── list tells no value, show does
    listed = project.run("deadletter", "list")
    assert listed.code == 0, listed.err
    assert "a check constraint is violated" in listed.out
    assert "short" in listed.out
    assert CANARY not in listed.out + listed.err
    listed = project.run("deadletter", "list", "--json")
    (entry,) = listed.document["result"]["pipelines"]
    assert set(entry) == {"ok", "pipeline", "letters"}
    by_state = {one["sqlstate"]: one for one in entry["letters"]}
    assert set(by_state) == {"23514", None}
    assert "key" not in by_state[None]
    assert "row" not in by_state[None]
    shown = project.run("deadletter", "show", "-p", "customers", str(by_state["23514"]["id"]), "--json")
    (letter,) = shown.document["result"]["letters"]
    assert json.loads(letter["row"])["name"] == CANARY
    assert (letter["version"], letter["change"], letter["constraint"]) == (2, "insert", "short")
    assert CANARY in project.run("deadletter", "show", "-p", "customers", str(letter["id"])).out
    unknown = project.run("deadletter", "show", "-p", "customers", "999999999")
    assert unknown.code == 2
    assert "no dead letter 999999999" in unknown.err

    # ── verify leaves them out, and only them
    verified = project.run("verify", "--json")
    assert verified.code == 0, verified.err
    (entry,) = verified.document["result"]["pipelines"]
    assert (entry["equal"], entry["set_aside"]) == (True, 2)

    # ── still bad: they stay
    again = project.run("deadletter", "replay", "-p", "customers", "--json")
    assert again.code == 3, again.err
    assert again.document["result"] == {"pipeline": "customers", "stored": 0, "deleted": 0, "rejected": 2}

    # ── mended: the one at the target, the other at the source, which is seen once the position is there
    database.query("alter table public.customers drop constraint short")
    done = project.run("deadletter", "replay", "-p", "customers")
    assert done.code == 3, done.err
    assert "customers: 1 stored, 0 deleted, 1 rejected again" in done.out
    assert CANARY not in done.err
    assert sorted(database.query("select id, name from customers")) == [(1, "fine"), (2, "fine"), (3, CANARY)]
    change(spark, filled, "update {t} set name = 'mended' where id = 4")
    assert project.run("run").code == 0
    assert sorted(database.query("select id, name from customers"))[3] == (4, "mended")
    empty = project.run("deadletter", "list")
    assert (empty.code, empty.out.strip()) == (0, "no dead letters")


def test_forgetting(project: Project, database: Database, filled: str) -> None:
    assert project.run("run").code == 0
    (first, second) = (one for (one,) in database.query("select id from deltarelay.dead_letter order by id"))
    refused = project.run("deadletter", "drop", "-p", "customers")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert database.query("select count(*) from deltarelay.dead_letter") == [(2,)]
    dropped = project.run("deadletter", "drop", "-p", "customers", str(first), "--yes", "--json")
    assert dropped.document["result"] == {"pipeline": "customers", "dropped": 1}
    assert database.query("select id from deltarelay.dead_letter") == [(second,)]
    # Its row is missing now
    verified = project.run("verify", "--json")
    assert verified.code == 3
    (entry,) = verified.document["result"]["pipelines"]
    assert (entry["missing"], entry["set_aside"]) == (1, 1)
    assert project.run("deadletter", "drop", "-p", "customers", "--yes").code == 0
    assert database.query("select count(*) from deltarelay.dead_letter") == [(0,)]
    done = project.run("deadletter", "list", "-p", "nobody")
    assert done.code == 2

"""Brakes, approvals and pauses with the command, a real table and PostgreSQL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from tests.acceptance.commands import Database, Project, change, create_source, pipeline
from tests.acceptance.in_process import Command, here

__all__ = ["here"]

TARGET = "public.customers"
ROWS = 12_000


@pytest.fixture
def filled(project: Project, database: Database, spark: SparkSession, here: Command) -> str:
    """A source of 12,000 rows at version 1, and a target that equals it. → the source"""
    path = str(project.folder / "source")
    create_source(spark, path)
    change(spark, path, f"insert into {{t}} select id, 'a', 1 from range({ROWS})")
    project.write({"customers": pipeline(path, table=TARGET)})
    done = here("run")
    assert done.code == 0, done.err
    return path


def count(database: Database) -> int:
    ((found,),) = database.query("select count(*) from public.customers")
    return int(found)


def test_a_mistaken_delete_is_stopped_shown_and_passes_only_when_it_is_approved(
    project: Project, database: Database, spark: SparkSession, filled: str, here: Command
) -> None:
    change(spark, filled, "insert into {t} values (50000, 'b', 1)")
    change(spark, filled, "delete from {t} where id < 9000")

    planned = here("plan")
    assert planned.code == 3, planned.err
    assert "would delete 9,000 of 12,000 rows (75%), and brakes.max_delete_share is 0.5" in planned.out

    for _ in range(2):
        stopped = here("run", "--json")
        assert stopped.code == 3, stopped.err
        (entry,) = stopped.document["result"]["pipelines"]
        assert entry["error"]["code"] == "brake_stopped"
        assert entry["error"]["fields"] == {"first": 2, "last": 3, "deletes": 9000, "changes": 9001}
        assert (count(database), database.position()) == (ROWS, 1)
    # One record for the stop, not one for each attempt
    assert database.query("select code from deltarelay.runs where code is not null") == [("brake_stopped",)]

    status = here("status", "--json")
    (entry,) = status.document["result"]["pipelines"]
    assert (status.code, entry["state"], entry["position"]) == (3, "stopped_by_brake", 1)
    assert "`deltarelay approve customers --window 2..3 --by YOU`" in here("status").out

    assert here("approve", "customers", "--window", "2..2", "--by", "maria").code == 0
    assert here("run").code == 3  # the window that was approved is applied, and the next one is stopped
    assert (count(database), database.position()) == (ROWS + 1, 2)
    approved = here("approve", "customers", "--window", "3..3", "--by", "maria")
    assert (approved.code, approved.out) == (0, "customers: the window 3..3 is approved; the next run applies it\n")
    assert here("run").code == 0
    assert (count(database), database.position()) == (ROWS + 1 - 9000, 3)
    (entry,) = here("status", "--json").document["result"]["pipelines"]
    assert entry["state"] == "up_to_date"
    records = database.query(
        "select r->>'action', r->>'by', r->>'text' from deltarelay.controls, jsonb_array_elements(document->'records') r"
    )
    assert records == [("approve", "maria", "3..3"), ("approve", "maria", "2..2")]


def test_a_restored_source_passes_by_itself(
    database: Database, spark: SparkSession, filled: str, here: Command
) -> None:
    change(spark, filled, "delete from {t}")
    assert here("run").code == 3
    change(spark, filled, "restore table {t} to version as of 1")
    assert here("run").code == 0
    assert (count(database), database.position()) == (ROWS, 3)


def test_a_stop_that_a_user_has_skipped_is_over(spark: SparkSession, filled: str, here: Command) -> None:
    change(spark, filled, "delete from {t}")
    assert here("run").code == 3
    moved = here("position", "set", "2", "-p", "customers", "--yes")
    assert moved.code == 0, moved.err
    change(spark, filled, "insert into {t} values (50000, 'b', 1)")
    status = here("status", "--json")
    (entry,) = status.document["result"]["pipelines"]
    assert (status.code, entry["state"]) == (0, "behind")


def test_the_first_window_of_a_trail_can_be_approved(project: Project, spark: SparkSession, here: Command) -> None:
    path = str(project.folder / "source")
    create_source(spark, path)
    change(spark, path, "insert into {t} values (1, 'a', 1), (2, 'b', 1)")
    change(spark, path, "delete from {t} where id = 1")
    customers = pipeline(path, start=2, connection="trail", table="customers", brakes={"max_delete_rows": 0})
    project.write(
        {"customers": customers}, connections=f"  trail: {{kind: delta_audit, path: {project.folder / 'trail'}}}"
    )
    approve = ("approve", "customers", "--by", "maria", "--window")
    assert here(*approve, "2..2").code == 2  # not stopped yet, so nobody knows what it is
    stopped = here("run")
    assert (stopped.code, "the window 2..2 would delete 1 rows" in stopped.err) == (3, True), stopped.err
    status = here("status", "--json")
    (entry,) = status.document["result"]["pipelines"]
    assert (status.code, entry["state"], entry["position"]) == (3, "stopped_by_brake", None)
    assert "`deltarelay approve customers --window 2..2 --by YOU`" in here("status").out
    assert here(*approve, "2..3").code == 2
    assert here(*approve, "2..2").code == 0
    assert here("run").code == 0
    (entry,) = here("status", "--json").document["result"]["pipelines"]
    assert (entry["state"], entry["position"]) == ("up_to_date", 2)


def test_an_approval_must_be_for_the_next_window(filled: str, here: Command) -> None:
    for window, why in (("3..4", "is not the next one"), ("2", "is not a window"), ("5..2", "is not a window")):
        refused = here("approve", "customers", "--window", window, "--by", "maria")
        assert (refused.code, why in refused.err) == (2, True), refused.err


def test_a_paused_pipeline_waits_until_it_is_resumed(
    database: Database, spark: SparkSession, filled: str, here: Command
) -> None:
    paused = here("pause", "customers", "--reason", "index rebuild", "--by", "maria")
    assert paused.code == 0, paused.err
    change(spark, filled, "insert into {t} values (50000, 'b', 1)")
    done = here("run")
    assert done.code == 0, done.err
    assert "customers is paused since" in done.err
    assert "by maria: index rebuild (`deltarelay resume customers`)" in done.err
    assert database.position() == 1
    status = here("status", "--json")
    (entry,) = status.document["result"]["pipelines"]
    assert (status.code, entry["state"]) == (0, "paused")
    assert here("resume", "customers", "--by", "maria").code == 0
    assert here("run").code == 0
    assert database.position() == 2
    assert here("resume", "customers").code == 0  # nothing to do


@pytest.mark.parametrize(
    ("statement", "deleted", "before"),
    [
        ("insert into {t} values (50000, 'b', 1)", 0, 0),
        ("update {t} set name = 'b' where id < 7", 0, ROWS),
        ("delete from {t} where id < 7", 7, ROWS - 7),
        ("delete from {t}", ROWS, 0),
        ("merge into {t} t using (select 3 as id) s on t.id = s.id when matched then delete", 1, ROWS - 1),
        (
            "merge into {t} t using (select 3 as id) s on t.id = s.id when not matched by source then delete",
            ROWS - 1,
            1,
        ),
        (
            "merge into {t} t using (select id from range(10, 50000)) s on t.id = s.id when matched then"
            " update set name = 'b' when not matched then insert (id, name) values (s.id, 'c')",
            0,
            ROWS,
        ),
        ("insert overwrite {t} select id, name, amount from {t} where id < 100", None, 0),
    ],
)
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_what_delta_records_of_deleted_rows_and_of_those_before(
    spark: SparkSession, delta_path: str, statement: str, deleted: int | None, before: int, vectors: str
) -> None:
    """A brake relies on these figures: a commit that records none is counted."""
    create_source(spark, delta_path)
    change(spark, delta_path, f"alter table {{t}} set tblproperties (delta.enableDeletionVectors = {vectors})")
    change(spark, delta_path, f"insert into {{t}} select /*+ coalesce(1) */ id, 'a', 1 from range({ROWS})")
    change(spark, delta_path, statement)
    (commit,) = ChangeFeed(spark, delta_path).log.commits(3, 3)
    assert (commit.deleted_rows, commit.rows_before) == (deleted, before)

"""The whole sink through PgBouncer in transaction mode, where no two transactions need meet the same server session."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import LeaseHeld, SinkUnavailable, TargetNotReady
from cdf.sink import Conflicts
from cdf.testing import SinkConformance, delete, insert, update
from cdf.testing.conformance.position import PositionPromises
from connectors.postgres import PostgresSink
from connectors.postgres.state import lease as leases
from tests.contract.test_postgres_sink import PostgresHarness, closing
from tests.fixtures.fix_pgbouncer import PgBouncer, Program, pooled
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, opened, people, person, position

A, B, C = person(1, "a"), person(2, "b"), person(3, "c")

Pooled = Callable[..., PgBouncer]


@pytest.fixture
def bouncer(pgbouncer_program: Program, server_folder: Path, pg: Pg) -> Iterator[PgBouncer]:
    with pooled(pgbouncer_program, server_folder / f"pooled-{secrets.token_hex(4)}", pg.dsn) as bouncer:
        yield bouncer


@pytest.fixture
def narrow(pgbouncer_program: Program, server_folder: Path, pg: Pg) -> Iterator[PgBouncer]:
    """One server session for all."""
    folder = server_folder / f"narrow-{secrets.token_hex(4)}"
    with pooled(pgbouncer_program, folder, pg.dsn, default_pool_size=1, query_wait_timeout=8) as bouncer:
        yield bouncer


def test_transactions_meet_other_sessions(bouncer: PgBouncer) -> None:
    """What the other tests rest on."""
    connect = lambda: psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None)  # noqa: E731
    with connect() as one, connect() as other:
        with one.transaction(), other.transaction():  # two sessions are needed at once, and stay
            one.execute("select 1")
            other.execute("select 1")
        met = {one.execute("select pg_backend_pid()").fetchone() for _ in range(10)}
    assert len(met) > 1


@pytest.fixture
def fast_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.3)


@pytest.mark.usefixtures("fast_renewal")
class TestThroughPgBouncer(SinkConformance):
    @pytest.fixture
    def spark(self) -> None:
        """The suite's windows and snapshots are in memory."""

    @pytest.fixture
    def harness(self, pg: Pg, bouncer: PgBouncer) -> Iterator[PostgresHarness]:
        yield from closing(PostgresHarness(dataclasses.replace(pg, dsn=bouncer.dsn)))


@pytest.mark.usefixtures("fast_renewal")
class TestTasksThroughPgBouncer(PositionPromises):
    """The tasks have connections of their own."""

    @pytest.fixture
    def harness(self, pg: Pg, bouncer: PgBouncer) -> Iterator[PostgresHarness]:
        yield from closing(PostgresHarness(dataclasses.replace(pg, dsn=bouncer.dsn), small_window_bytes=0))


@ON_BOTH_PATHS
def test_one_server_session_is_enough(
    session: SparkSession | None, pg: Pg, narrow: PgBouncer, path: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the sink keeps a transaction open while it needs another: it would wait for itself."""
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.2)
    table = people(session)
    with loaded(pg, table, [A], dsn=narrow.dsn, **path) as sink:
        for version in range(2, 6):
            applied = sink.apply(table.window(version, [insert(person(version, "n"))]))
            assert applied.conflicts == Conflicts()
        with pytest.raises(LeaseHeld):
            PostgresSink(narrow.dsn, table=f"{pg.schema}.target").open(table.source())
        assert sink.standing().lease_holder is not None
        sink.report({"versions": 5})
        assert sink.reported() == {"versions": 5}
    assert (sorted(names(pg)), position(pg)) == ([1, 2, 3, 4, 5], 5)


@ON_BOTH_PATHS
def test_server_sessions_that_are_exchanged_between_transactions_cost_nothing(
    session: SparkSession | None, pg: Pg, bouncer: PgBouncer, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=bouncer.dsn, **path) as sink:
        for version in range(2, 5):
            bouncer.say("reconnect")  # each server session is closed as soon as its transaction ends
            sink.apply(table.window(version, [insert(person(version, "n"))]))
    assert (sorted(names(pg)), position(pg)) == ([1, 2, 3, 4], 4)


@ON_BOTH_PATHS
def test_a_pooler_that_is_killed_and_comes_back_costs_a_try(
    session: SparkSession | None, pg: Pg, bouncer: PgBouncer, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=bouncer.dsn, **path) as sink:
        bouncer.say("disable postgres")
        pg.query("select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'deltarelay'")
        with pytest.raises(SinkUnavailable):
            sink.apply(table.window(2, [insert(B)]))
        assert (names(pg), position(pg)) == ({1: "a"}, 1)
        bouncer.say("enable postgres")
        sink.apply(table.window(2, [insert(B)]))
        sink.apply(table.window(3, [insert(C), delete(A), update(B, person(2, "n"))]))
    assert (names(pg), position(pg)) == ({2: "n", 3: "c"}, 3)


def test_a_pipeline_with_its_commands_goes_through(
    spark: SparkSession, pg: Pg, bouncer: PgBouncer, delta_path: str
) -> None:
    """Load, windows of a real table, a new column, verify, reload by swap and by merge, status."""
    table = f"delta.`{delta_path}`"
    spark.sql(
        f"create table {table} (id bigint, name string) using delta tblproperties (delta.enableChangeDataFeed = true)"
    )
    sink = PostgresSink(bouncer.dsn, table=f"{pg.schema}.target")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key=["id"], name="p")
    spark.sql(f"insert into {table} select id, concat('n', id) from range(100)")
    pipeline.run()
    spark.sql(f"alter table {table} add column note string")
    spark.sql(f"update {table} set note = 'x' where id % 2 = 0")
    spark.sql(f"delete from {table} where id % 5 = 0")
    pipeline.run()
    assert pipeline.verify().equal
    pg.query("delete from target where id < 10")
    assert not pipeline.verify().equal
    pipeline.reload()
    assert pipeline.verify().equal
    pg.query("create view seen as select id, name from target")  # now a swap would lose it: the difference is merged
    pg.query("delete from target where id > 90")
    pipeline.reload()
    assert pipeline.verify().equal
    assert pg.query("select count(*) from seen") == [(80,)]
    standing = sink.standing()
    assert (standing.position.version, standing.lease_holder) == (4, None)


def test_what_a_pooler_does_not_pass_on_is_named(pg: Pg, bouncer: PgBouncer, session: SparkSession | None) -> None:
    with pytest.raises(TargetNotReady, match="refuses a parameter of the dsn") as found:
        PostgresSink(make_conninfo(bouncer.dsn, options="-c lock_timeout=1s"), table="target").position()
    assert "pooler" in str(found.value.hint)
    with opened(pg, people(session).source(), dsn=bouncer.dsn):
        pass

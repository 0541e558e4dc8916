"""The PostgreSQL sink keeps every promise on a real server, both ways by which rows get there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.rows import dict_row

from cdf.sink import Capabilities
from cdf.testing import SinkConformance
from cdf.testing.conformance.load import LoadPromises
from cdf.testing.conformance.position import PositionPromises
from cdf.testing.conformance.runner import RunnerPromises
from cdf.testing.conformance.state import StatePromises
from connectors.postgres import PostgresSink
from connectors.postgres.options import Modes
from connectors.postgres.state import lease
from tests.fixtures.fix_postgres import Pg


class PostgresHarness:
    """A table in the test's own schema. Instances that a test has left open are closed at its end."""

    def __init__(self, pg: Pg, **options: Any) -> None:
        self.pg, self.options, self.made = pg, options, list[PostgresSink]()

    @property
    def capabilities(self) -> Capabilities:
        return PostgresSink(self.pg.dsn, table=f"{self.pg.schema}.target", **self.options).capabilities

    def new_sink(self, **overrides: Any) -> PostgresSink:
        sink = PostgresSink(
            self.pg.dsn, table=f"{self.pg.schema}.target", **{"conflicts": "report", **self.options, **overrides}
        )
        self.made.append(sink)
        return sink

    def read_rows(self) -> list[dict[str, Any]]:
        if self.pg.query("select to_regclass('{schema}.target')") == [(None,)]:
            return []
        with self.pg.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("select * from target").fetchall()

    def expire_lease(self) -> None:
        for sink in self.made:  # as in a process that stands still: nobody renews
            if sink._open_target.renewal is not None:
                sink._open_target.renewal.stop()
        self.pg.query(
            "update deltarelay.position set lease_until = clock_timestamp() - interval '1 second' where target = %s",
            f"{self.pg.schema}.target",
        )


@pytest.fixture
def fast_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner shows every 0.3 s that it is alive, so that the tests need not wait 4 s to see it."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)


def closing(harness: PostgresHarness) -> Iterator[PostgresHarness]:
    yield harness
    for sink in harness.made:
        sink.close()


@pytest.mark.usefixtures("fast_renewal")
class TestSmallWindowsThroughTheDriver(SinkConformance):
    @pytest.fixture
    def spark(self) -> None:
        """The suite's windows and snapshots are in memory."""

    @pytest.fixture
    def harness(self, pg: Pg) -> Iterator[PostgresHarness]:
        yield from closing(PostgresHarness(pg))


@pytest.mark.usefixtures("fast_renewal")
class TestSmallWindowsOfSpark(StatePromises):
    """Spark collects what comes in memory above."""

    @pytest.fixture
    def harness(self, pg: Pg) -> Iterator[PostgresHarness]:
        yield from closing(PostgresHarness(pg))


@pytest.mark.usefixtures("fast_renewal")
class TestEveryWindowFromTheTasks(LoadPromises, StatePromises, PositionPromises):
    """What depends on how rows get to the server; the lease, the fence and reloads do not."""

    @pytest.fixture
    def harness(self, pg: Pg) -> Iterator[PostgresHarness]:
        yield from closing(PostgresHarness(pg, small_window_bytes=0))


@pytest.mark.usefixtures("fast_renewal")
class TestOnlyAddedColumnsAreFollowed(RunnerPromises):
    """To a sink that follows every change of type, one is no problem: this one has something to name."""

    @pytest.fixture
    def spark(self) -> None:
        """The suite's windows and snapshots are in memory."""

    @pytest.fixture
    def harness(self, pg: Pg) -> Iterator[PostgresHarness]:
        yield from closing(PostgresHarness(pg, modes=Modes(schema_changes="add_columns")))

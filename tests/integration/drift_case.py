"""What the tests of drift on PostgreSQL share: a Delta table, its replica, and what became of the replica's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import CdfError
from cdf.results import RunResult
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import position, sink_of

MAPPED = {"columnMapping.mode": "name"}
WIDENING = {"enableTypeWidening": "true"}


@dataclass(slots=True)
class Replica:
    table: Table
    pg: Pg
    pipeline: Pipeline

    def run(self, until: int | None = None) -> RunResult:
        return self.pipeline.run(until)

    def follows(self) -> RunResult:
        """Run to the end, after which the target equals the source."""
        result = self.run()
        self.equals()
        assert result.position == self.latest
        return result

    def equals(self) -> None:
        found = self.pipeline.verify()
        assert (found.equal, found.missing, found.extra, found.different) == (True, 0, 0, 0)
        assert found.source_rows > 0

    @property
    def latest(self) -> int:
        return self.pipeline.feed.log.latest()

    @property
    def position(self) -> int | None:
        return position(self.pg)

    def columns(self) -> dict[str, str]:
        return dict(
            self.pg.query(
                "select attname::text, format_type(atttypid, atttypmod) from pg_attribute"
                " where attrelid = to_regclass('{schema}.target') and attnum > 0 and not attisdropped order by attnum"
            )
        )

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.pg.query(f"select {columns} from {{schema}}.target"), key=repr)

    def schema_changes(self, limit: int = 10) -> list[tuple[int | None, tuple[str, ...]]]:
        """Version and texts of what the history records, the latest first."""
        found = sink_of(self.pg).runs(limit, schema_changes=True)
        return [(record.first, record.schema_changes) for record in found]

    def state(self) -> tuple[Any, ...]:
        return self.columns(), self.rows(), self.position


def replica(spark: SparkSession, pg: Pg, table: Table, **options: Any) -> Replica:
    limits = options.pop("limits", None)
    pipeline = Pipeline(
        ChangeFeed(spark, table.path),
        sink_of(pg, **options),
        key=options.pop("key", "id"),
        limits=limits,
        name="people",
    )
    return Replica(table, pg, pipeline)


def replicated(spark: SparkSession, pg: Pg, table: Table, *rows: str, **options: Any) -> Replica:
    """A replica that holds these rows, each written as VALUES."""
    table.sql(f"insert into {{t}} values {', '.join(rows)}")
    made = replica(spark, pg, table, **options)
    made.run()
    return made


def told(error: CdfError) -> str:
    return f"{error.message} {error.hint}"

"""A table that needs a feature which this reader does not know is refused by name: by every command, before any read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import FeatureNotSupported
from cdf.testing import MemorySink
from infra.config.load import load
from infra.diagnostics.doctor import run_all_checks
from infra.diagnostics.preflight import check_connections
from infra.diagnostics.status import read_pipeline_status
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.setups import Setup
from tests.integration.delta_table import Table, inserted
from tests.integration.foreign_writer import append_commit, metadata_with, protocol

COORDINATOR = {"coordinatedCommits.commitCoordinator-preview": "nobody-knows", "enableInCommitTimestamps": "true"}

# name, actions → the part of the message that names it
CASES: dict[str, tuple[Callable[[Path], list[dict[str, Any]]], str]] = {
    "unknown to all": (lambda _: [protocol("timeMachine")], "the table feature timeMachine"),
    # Delta 4.4 reads these without an error
    "known to Delta only": (lambda _: [protocol("geospatial", "timestampNtz")], "the table feature geospatial"),
    "writers are redirected": (
        lambda _: [protocol(writers=("redirectWriterOnly-preview",))],
        "the table feature redirectWriterOnly-preview: its data are at another location",
    ),
    "readers are redirected": (
        lambda _: [protocol("redirectReaderWriter-preview")],
        "the table feature redirectReaderWriter-preview: its data are at another location",
    ),
    "managed by a catalog": (
        lambda table: [
            protocol("catalogManaged", "vacuumProtocolCheck", writers=("inCommitTimestamp",)),
            metadata_with(table, enableInCommitTimestamps="true"),
        ],
        "the table feature catalogManaged: its newest commits are in a catalog",
    ),
    "owned by a catalog": (
        lambda _: [protocol("catalogOwned-preview", writers=("inCommitTimestamp",))],
        ": its newest commits are in a catalog",
    ),
    "commits are coordinated": (
        lambda table: [
            protocol(writers=("coordinatedCommits-preview", "inCommitTimestamp")),
            metadata_with(table, **COORDINATOR),
        ],
        "coordinated commits (delta.coordinatedCommits.commitCoordinator…): its newest commits are with the coordinator",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_reader_names_the_feature(spark: SparkSession, tmp_path: Path, pg: Pg, case: str) -> None:
    setup = Setup(tmp_path / "setup", pg.dsn, target=f"{pg.schema}.customers")
    actions, named = CASES[case]
    append_commit(setup.table, *actions(setup.table))
    project = load(setup.write(), environ=setup.environment)

    with pytest.raises(FeatureNotSupported) as caught:
        ChangeFeed(spark, str(setup.table))
    assert named in caught.value.message
    assert str(setup.table) in caught.value.message

    status = read_pipeline_status(project, "customers")
    assert (status.state, status.code) == ("failed", "feature_not_supported")
    assert named in str(status.error)
    connection = check_connections(project, "customers")
    assert not connection.ok
    assert [named in problem for problem in connection.problems] == [True]
    _, findings = run_all_checks(setup.look(), setup.config)
    assert [(one.state, named in one.found) for one in findings if one.check == "source"] == [("failed", True)]


def test_a_table_that_gets_an_unknown_feature_is_refused_before_its_next_commit_is_read(
    spark: SparkSession, delta_path: str
) -> None:
    inserted(spark, delta_path, 2)
    feed, sink = ChangeFeed(spark, delta_path), MemorySink()
    pipeline = Pipeline(feed, sink, key="id", start=0)
    pipeline.run()
    append_commit(delta_path, protocol("geospatial"))
    Table.at(spark, delta_path).sql("insert into {t} values (3, 'a')")
    with pytest.raises(FeatureNotSupported, match="the table feature geospatial"):
        pipeline.run()
    assert sink.store.contents.position.version == 2


def test_a_commit_that_needed_an_unknown_feature_is_refused_although_the_table_needs_it_no_longer(
    spark: SparkSession, delta_path: str
) -> None:
    inserted(spark, delta_path, 2)
    append_commit(delta_path, protocol("geospatial"))
    append_commit(delta_path, protocol())
    sink = MemorySink()
    feed = ChangeFeed(spark, delta_path)
    with pytest.raises(FeatureNotSupported, match="the table feature geospatial"):
        Pipeline(feed, sink, key="id", start=1).run()
    assert sink.store.contents.position.version == 1  # the initial load
    Pipeline(feed, sink, key="id", start=1).run(until=2)
    assert sink.store.contents.position.version == 2

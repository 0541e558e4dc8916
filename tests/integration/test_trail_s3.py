"""A trail whose tables are on S3 (moto's real server), of a source that is there too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.signing.signer import Signer
from audit.trail.tables import EVENTS, PAYLOAD
from cdf import ChangeFeed, Pipeline
from cdf.errors import TargetNotReady
from connectors.delta_audit.sink import DeltaAuditSink
from infra.config.load import load
from infra.config.models import Project
from infra.diagnostics.status import read_pipeline_status
from tests.acceptance.commands import change
from tests.fixtures.fix_aws import Aws
from tests.integration.test_s3_source import SCHEMA, keys, lake, single_writer

__all__ = ["lake", "single_writer"]  # fixtures


@pytest.fixture
def project(aws: Aws, lake: str, tmp_path: Path) -> Project:
    Signer.generate("example.org/test").write(tmp_path / "audit.key")
    file = tmp_path / "deltarelay.yaml"
    file.write_text(
        "version: 1\n"
        f"storage: {{s3: {{region: {aws.region}, endpoint: '{aws.endpoint}', path_style: true, credentials: env}}}}\n"
        f"connections: {{trail: {{kind: delta_audit, path: 's3://{aws.bucket}/trails', signing_key: '${{file:audit.key}}',\n"
        f"  anchors: [{{kind: s3, url: 's3://{aws.bucket}/anchors'}}]}}}}\n"
        f"pipelines: {{p: {{source: {{table: '{lake}', key: [id], start: earliest}}, "
        "sink: {connection: trail, table: t}}}\n"
    )
    return load(file)


@pytest.mark.usefixtures("single_writer")
def test_each_event_once_and_intact(spark: SparkSession, aws: Aws, lake: str, project: Project) -> None:
    assert project.uses_s3()
    feed = ChangeFeed.create(spark, lake, SCHEMA)
    change(spark, lake, "insert into {t} select id, concat('n', id) from range(30)", "delete from {t} where id = 3")
    sink = project.build_sink("p")
    assert isinstance(sink, DeltaAuditSink)
    assert read_pipeline_status(project, "p").state == "empty"
    assert Pipeline(feed, sink, key=["id"], start="earliest", name="p").run().position == 2
    change(spark, lake, "update {t} set name = 'x' where id < 2", "optimize {t}")
    pipeline = Pipeline(feed, project.build_sink("p"), key=["id"], start="earliest", name="p")
    assert pipeline.run().position == 4
    status = read_pipeline_status(project, "p")
    assert (status.state, status.position) == ("up_to_date", 4)
    found, _ = sink.trail.verify()
    assert (found.findings, found.sealed_version, found.records, found.events, found.values) == ((), 4, 5, 35, 35)
    assert len([key for key in keys(aws, "anchors/") if key.endswith(".txt")]) == 2
    rows = sink.trail.tables.read(EVENTS).join(sink.trail.tables.read(PAYLOAD).select("id"), "id")
    assert rows.count() == 35
    assert pipeline.verify().equal


def test_nothing_is_written_before_somebody_has_said_what_keeps_writers_apart(
    spark: SparkSession, aws: Aws, lake: str, project: Project, tmp_path: Path
) -> None:
    feed = ChangeFeed.create(spark, str(tmp_path / "source"), SCHEMA)
    with pytest.raises(TargetNotReady, match="nothing is written"):
        Pipeline(feed, project.build_sink("p"), key=["id"], start="earliest").run()
    assert keys(aws) == []

"""A real Delta table that is behind the target; where runs begin and end is in ``tests/unit/test_pipeline_start.py``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import VersionNotFound
from cdf.testing import MemorySink
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")


def test_a_source_that_is_behind_the_position_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "table"))
    table.sql("insert into {t} values (1, 'a')")
    shutil.copytree(table.path, tmp_path / "backup")
    table.sql("insert into {t} values (2, 'b')", "insert into {t} values (3, 'c')")
    sink = MemorySink()
    Pipeline(ChangeFeed(spark, table.path), sink, key="id").run()
    before = sink.store.contents

    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "backup", table.path)
    table.forget()
    pipeline = Pipeline(ChangeFeed(spark, table.path), sink, key="id")
    with pytest.raises(VersionNotFound) as caught:
        pipeline.run()
    assert "the target is at version 3" in caught.value.message
    assert f"{table.path} ends at 1" in caught.value.message
    assert sink.store.contents is before
    assert any("the target is at version 3" in problem for problem in pipeline.plan().problems)

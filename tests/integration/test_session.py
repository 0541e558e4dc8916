"""A session starts, is quiet, reaches our packages from its workers, and says clearly why when it does not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import infra.spark.session_builder

ROOT = Path(infra.__file__).resolve().parents[1]


def run(code: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: a session is one per process, and so is what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


FAILING = """
import json
from cdf.errors import ConfigError
from infra.spark.session_builder import session
try:
    session(master="local[1]", log_file="spark.log", conf=CONF)
except ConfigError as error:
    print(json.dumps(error.to_dict() | {"cause": type(error.__cause__).__name__}))
"""


def refused(cwd: Path, conf: dict[str, str], **environment: str) -> dict[str, str]:
    done = run(FAILING.replace("CONF", repr(conf)), cwd, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, str] = json.loads(done.stdout)
    assert answer["code"] == "config"
    return answer


def test_delta_and_arrow_work_without_a_warning(spark: SparkSession, delta_path: str) -> None:
    spark.range(10).write.format("delta").save(delta_path)
    table = spark.read.format("delta").load(delta_path)

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"id": [2 * value for value in batch.column(0).to_pylist()]})

    assert sorted(row["id"] for row in table.mapInArrow(doubled, "id long").collect()) == list(range(0, 20, 2))
    assert table.toPandas()["id"].sum() == 45
    assert spark.createDataFrame(table.toPandas()).count() == 10


def test_the_active_session_is_used_again(spark: SparkSession) -> None:
    assert infra.spark.session_builder.session(app_name="other").sparkContext is spark.sparkContext


QUIET = """
import os, pathlib
import cdf.errors
from infra.spark.session_builder import session
secret, name = os.environ["CANARY"], "spark.hadoop.fs.s3a.secret.key"
spark = session(master="local[1]", log_file="spark.log", conf={name: secret, "spark.app.id": "control-123"})
assert spark.sparkContext.getConf().get(name) == secret
arguments = b""
for one in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        arguments += one.read_bytes()
    except OSError:
        pass
assert not arguments or b"spark.app.id=control-123" in arguments
assert secret.encode() not in arguments

def where(batches):
    import sys
    import pyarrow as pa
    from cdf import errors
    print("a worker prints")
    yield pa.record_batch({"file": [errors.__file__], "python": [sys.executable]})

row = spark.range(1, numPartitions=1).mapInArrow(where, "file string, python string").collect()[0]
try:
    spark.range(1).mapInArrow(lambda batches: 1 / 0, "id long").collect()
except Exception:
    pass
import sys
assert row["file"] == cdf.errors.__file__ and row["python"] == sys.executable, row
print("ready")
spark.stop()
"""


def test_nothing_of_the_jvm_reaches_our_output(tmp_path: Path) -> None:
    # Started elsewhere than in the project, so that workers cannot find our packages by luck.
    done = run(QUIET, tmp_path, CANARY="s3cret-of-the-test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    log = (tmp_path / "spark.log").read_text()
    assert "ZeroDivisionError" in log
    assert "a worker prints" in log


def test_jars_that_cannot_be_fetched(tmp_path: Path) -> None:
    answer = refused(tmp_path, {"spark.jars.packages": "io.nowhere:nothing_2.13:0.0.1"}, DELTARELAY_JARS="")
    assert answer["message"] == "the jars that Spark needs could not be fetched: io.nowhere:nothing_2.13:0.0.1"
    for help_ in ("deltarelay.yaml", "DELTARELAY_JARS", "spark.log"):
        assert help_ in answer["hint"]


def test_jars_that_are_not_there(tmp_path: Path) -> None:
    answer = refused(tmp_path, {}, DELTARELAY_JARS="/nowhere/delta.jar")
    assert answer["message"] == "DELTARELAY_JARS: /nowhere/delta.jar does not exist"


def test_jars_without_delta(tmp_path: Path) -> None:
    (tmp_path / "empty.jar").write_bytes(b"PK\x05\x06" + 18 * b"\0")
    answer = refused(tmp_path, {}, DELTARELAY_JARS=str(tmp_path / "empty.jar"))
    assert answer["message"] == "the jars given to Spark do not contain Delta Lake"


def test_a_master_that_spark_does_not_know(tmp_path: Path) -> None:
    answer = refused(tmp_path, {"spark.master": "nonsense"}, DELTARELAY_JARS="")
    assert answer["message"].startswith("Spark's Java process did not start: ")

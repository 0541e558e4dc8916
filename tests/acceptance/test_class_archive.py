"""``deltarelay jars archive``: later JVMs load Spark's and Delta's classes from it, and one that does not fit is ignored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import fix_report

PROGRAM = """
import sys
from infra.spark.session_builder import session

spark = session(master="local[1]", log_file=sys.argv[1])
spark.range(3).write.format("delta").save(sys.argv[2])
print(spark.read.format("delta").load(sys.argv[2]).count())
"""
USER_OPTIONS = {"SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"}


class Machine:
    """A user of an own cache, temporary folder and Java options."""

    def __init__(self, folder: Path) -> None:
        fix_report.own_jvm("its start is what is tested")
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if name not in USER_OPTIONS}
        self.environment = {**kept, "XDG_CACHE_HOME": str(folder / "the cache"), "TMPDIR": str(folder)}

    def command(self, *words: str) -> str:
        return self._run([sys.executable, "-m", "infra.cli.main", *words])

    def start(self, name: str) -> tuple[set[str], str]:
        """→ the classes that a session takes from the archive, and the output of its Java"""
        classes, log = self.folder / f"{name}.classes", self.folder / f"{name}.log"
        options = {"JDK_JAVA_OPTIONS": f"-Xlog:class+load:file={classes}"}
        assert self._run([sys.executable, "-c", PROGRAM, str(log), str(self.folder / name)], options) == "3\n"
        lines = [line for line in classes.read_text().splitlines() if "shared objects file (top)" in line]
        return {line.split("] ")[-1].split()[0] for line in lines}, log.read_text(errors="replace")

    def _run(self, command: list[str], more: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            env={**self.environment, **(more or {})},
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_classes_come_from_the_archive_as_long_as_it_fits(machine: Machine) -> None:
    assert "`deltarelay jars archive`" in machine.command("doctor")
    written = json.loads(machine.command("jars", "archive", "--json"))["result"]
    archive = Path(written["file"])
    assert [one.name for one in archive.parent.glob("classes-*")] == [archive.name]
    assert archive.stat().st_size == written["bytes"]
    assert "with an archive of Spark's classes" in machine.command("doctor")
    classes, _ = machine.start("fits")
    assert {"org.apache.spark.SparkContext", "org.apache.spark.sql.delta.DeltaLog"} <= classes
    archive.chmod(0o600)
    archive.write_bytes(b"damaged" * 10_000)
    classes, output = machine.start("damaged")
    assert classes == set()
    assert "[warning][cds" not in output
    assert "shared" not in output

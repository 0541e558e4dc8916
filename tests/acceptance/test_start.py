"""The start of Spark: the second one of a user resolves no jars again, until one of them has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fixtures import fix_report

PROGRAM = """
import json, sys
from infra.spark.session_builder import session

spark = session(master="local[1]", log_file=sys.argv[1])
spark.range(3).write.format("delta").save(sys.argv[2])
packages = spark.sparkContext.getConf().get("spark.jars.packages")
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
print(json.dumps({"packages": packages, "jars": [url.getPath() for url in loader.getURLs()]}))
"""


def start(folder: Path, number: int) -> tuple[dict[str, Any], str]:
    """→ the jars and packages of the session, and what Spark and Ivy wrote"""
    fix_report.own_jvm("its start is what is tested")
    log = folder / f"{number}.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DELTARELAY_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log), str(folder / f"table-{number}")],
        env={**kept, "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), log.read_text(errors="replace")


def test_the_second_start_resolves_no_jars_and_uses_the_same(tmp_path: Path) -> None:
    first, said = start(tmp_path, 1)
    assert first["packages"] is not None
    assert "resolving dependencies" in said
    second, said = start(tmp_path, 2)
    assert second["packages"] == ""
    assert "resolving dependencies" not in said
    assert second["jars"] == first["jars"] != []
    assert (tmp_path / "table-2" / "_delta_log").is_dir()

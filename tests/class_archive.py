"""Makes the archive of Java's classes from which the tests' JVMs start (class data sharing, JEP 350).

The tests start Spark more than a hundred times, mostly as a process that lives for seconds, and a third of such a life is
spent on reading and checking the same classes. Java ignores an archive that does not fit to it or to its class path.

    python -m tests.class_archive        makes it, once for a virtual environment
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.spark.archive_writer import load_classes

__all__ = ["ARCHIVE", "java_options"]

ARCHIVE = Path(sys.prefix) / ".spark-classes.jsa"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Short lives on two cores: without the optimising compiler and parallel collectors every JVM that the tests start, also
below the command line, needs about half the processor time. The room for compiled code would be 48 MB then, and sweeping it
took a quarter of the processor time of the tests' own JVM. A user's JVM keeps its defaults."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java tells on stdout what it cannot archive, or cannot use."""


def java_options() -> str:
    """For ``SPARK_SUBMIT_OPTS``."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE} {QUIET}" if ARCHIVE.exists() else SHORT_LIVED


def main() -> int:
    if len(sys.argv) > 1:
        load_classes(Path(sys.argv[1]), Path(sys.argv[1]) / "spark.log")
        return 0
    made = ARCHIVE.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={made} {QUIET}"
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode != 0 or not made.exists():
        made.unlink(missing_ok=True)
        print("no archive of Java's classes could be made: the tests start more slowly", file=sys.stderr)
        return 0
    made.rename(ARCHIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Ctrl-C while Spark's JVM starts: PySpark forgets that process, and it would run for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.commands import descendants, wait_for
from tests.acceptance.test_demo import environment

BEFORE_ITS_PORT = """
sleep = time.sleep

def interrupted(seconds):
    sleep(0.7)  # the JVM is there, and has not told its port yet
    raise KeyboardInterrupt

java_gateway.time.sleep = interrupted
"""
IN_POPEN = """
class Interrupted(subprocess.Popen):
    def __init__(self, *words, **named):
        super().__init__(*words, **named)
        os.kill(os.getpid(), signal.SIGINT)

java_gateway.Popen = Interrupted
"""
BROKEN_OFF = """
import os, signal, subprocess, sys, time
from pyspark import SparkConf, java_gateway
from infra.spark.java import start_java
{moment}
try:
    start_java(SparkConf(loadDefaults=False).set("spark.app.name", sys.argv[1]), sys.argv[1], fetches=False)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("moment", [BEFORE_ITS_PORT, IN_POPEN], ids=["before its port", "in Popen"])
def test_no_jvm_is_left(tmp_path: Path, moment: str) -> None:
    log = str(tmp_path / "spark.log")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF.format(moment=moment), log],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "interrupted\n", done.stderr
    wait_for(lambda: not [one for _, one in descendants(0).values() if log in one], "the JVM to end", seconds=20)

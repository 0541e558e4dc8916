"""Jars of the peers and limits, from Maven through Ivy."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark

from benchmarks.lab import Lab
from infra.spark.java import require_java

__all__ = ["fetch_jars"]


def fetch_jars(lab: Lab, folder: Path, coordinate: str, *, confs: Sequence[str] = ("default", "runtime")) -> bool:
    """Put the jars of ``coordinate`` (``group:name:version``) into ``folder``; ``confs``: Ivy's configurations.

    → False, with a word about it, where they cannot be had.
    """
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [
        *(str(require_java().program), "-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(lab.folder / "ivy")),
        *("-dependency", *coordinate.split(":"), "-confs", *confs),
        *("-retrieve", str(folder / "[artifact]-[revision].[ext]")),
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    # Ivy leaves what it found where something else is missing
    found = done.returncode == 0 and any(folder.glob("*.jar"))
    if not found:
        lab.say(f"without {coordinate}: Ivy could not fetch it")
    return found

"""An archive of the classes that Spark and Delta load, from which later JVMs start faster (class data sharing, JEP 350).

``deltarelay jars archive`` writes it into the user's cache folder. It is used as long as Java, PySpark's jars and Delta's
version are those from which it was written. Java checks this as well, and ignores an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infra.spark.resolved_jars import cache_folder
from infra.spark_pairs import delta_package
from infra.temporary import find_folder_problem

if TYPE_CHECKING:
    from infra.spark.java import Java

__all__ = ["OPTIONS_VARIABLE", "QUIET", "archive_options", "archive_file", "find_archive"]

OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of the driver's Java, beside those of ``spark.driver.extraJavaOptions``, which replace each other."""
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java writes to stdout why it does not use an archive."""
_CHOSEN = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare:", "-XX:+AutoCreateSharedArchive")
_VARIABLES = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def archive_options(java: Java, conf: Mapping[str, str]) -> str:
    """The options with which Java uses the archive; empty where there is none that fits, or the user has chosen another."""
    given = [os.environ.get(name, "") for name in _VARIABLES] + [conf.get("spark.driver.extraJavaOptions", "")]
    if any(option in text for text in given for option in _CHOSEN):
        return ""
    file = find_archive(java)
    # Spark splits the options at white space, except in quotation marks
    return f'"-XX:SharedArchiveFile={file}" -Xshare:auto {QUIET}' if file is not None and '"' not in str(file) else ""


def find_archive(java: Java) -> Path | None:
    """The archive that fits this Java and the installed PySpark and Delta."""
    with suppress(OSError, RuntimeError, ImportError):
        file = archive_file(java)
        status = file.lstat()
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
        if is_ours and find_folder_problem(cache_folder()) is None:  # Java runs what is in it
            return file
    return None


def archive_file(java: Java) -> Path:
    """Its name has the place of Java and PySpark, then their state: another state is another file."""
    jars = _spark_folder() / "jars"
    place = [str(java.program.resolve()), str(jars)]
    files = [(file.name, file.stat()) for file in sorted(jars.iterdir())]
    program = java.program.stat()
    state = [
        java.version,
        delta_package(),
        [program.st_size, program.st_mtime_ns],
        [[name, status.st_size, status.st_mtime_ns] for name, status in files],
    ]
    return cache_folder() / f"classes-{_digest(place)}-{_digest([place, state])}.jsa"


def _spark_folder() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise OSError("PySpark is not installed")
    return Path(found.submodule_search_locations[0])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]

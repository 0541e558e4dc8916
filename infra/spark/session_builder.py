"""The Spark session with Delta in it: which jars, which settings, and a clear word when it does not start.

``settings`` is pure and decides everything; ``session`` starts the JVM with it. The rest of the project is handed a
session and never asks where it came from.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, condition_of
from infra.s3.settings import LOG_STORE_ARTIFACT, excludes, is_secret, java_options, located, packages, spark_conf
from infra.spark.java import require_java, see_output, start_java
from infra.temporary import private_folder, private_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.s3.model import Storage

__all__ = ["EXCLUDED", "delta_package", "session", "settings"]

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
JARS_VARIABLE = "DELTARELAY_JARS"
NO_LOG_STORE = (
    f"not every registry has {LOG_STORE_ARTIFACT}: copy its jar to this machine and name it, "
    f"`spark: {{conf: {{spark.jars: /path/{LOG_STORE_ARTIFACT}.jar}}}}`, or put it among the jars of `jars:` or "
    "DELTARELAY_JARS; or, where exactly one process writes, choose `commits: {kind: single_writer}`"
)
DEFAULT_MASTER = "local[*,4]"
"""All cores, and four tries for a task, as on a cluster: plain ``local[*]`` fails the job with the first lost worker."""

# Delta's jars ask for older Hadoop clients than the ones that PySpark carries; both on one class path is one too many.
EXCLUDED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
# For these a caller's value is added to ours: replacing it would take Delta out of the session.
_LISTS = ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


def delta_package() -> str:
    """The Maven coordinate of the Delta jars that fit the installed PySpark and delta-spark."""
    line = ".".join(metadata.version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{line}_2.13:{metadata.version('delta-spark')}"


def settings(
    master: str | None,
    *,
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] | None = None,
    environment: Mapping[str, str] | None = None,
    storage: Storage | None = None,
    java: Sequence[str] = (),
) -> dict[str, str]:
    """Every Spark setting of the session. ``master=None``: spark-submit has chosen the master, the jars and the memory.

    A value of ``conf`` replaces ours; only the lists (jars, packages, excludes, extensions) and the driver's Java options
    are joined. ``storage``: there are tables on S3. ``java``: options for the driver's Java.
    """
    environment = os.environ if environment is None else environment
    chosen = {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        # The default cuts Arrow batches by bytes as well, which makes many small ones out of wide rows.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # Noting the line of Python behind every column costs a millisecond each, 0.1 s for every window
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        # Spark remembers 1,000 of each also without its UI: memory, in a process that follows for weeks
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.ui.showConsoleProgress": "false",
    }
    if storage is not None:
        chosen |= spark_conf(storage)
    if master is not None:
        chosen["spark.master"] = master
        if given := jar_files(jars, environment):
            chosen["spark.jars"] = ",".join(given)
        else:
            chosen["spark.jars.packages"] = ",".join([delta_package(), *_s3_packages(storage, conf)])
            chosen["spark.jars.excludes"] = ",".join([EXCLUDED, *(excludes(storage) if storage is not None else ())])
        if java:
            chosen[_JAVA_OPTIONS] = " ".join(java)
        chosen |= _local_settings(master)
    for key, value in (conf or {}).items():
        if key == _JAVA_OPTIONS and key in chosen:
            chosen[key] = f"{chosen[key]} {value}"
        else:
            chosen[key] = _join(chosen[key], value) if key in _LISTS and key in chosen else value
    return chosen


def _s3_packages(storage: Storage | None, conf: Mapping[str, str] | None) -> list[str]:
    """Without the log store where its jar is among ``spark.jars``: it may be had no other way."""
    given = (conf or {}).get("spark.jars", "")
    found = packages(storage) if storage is not None else []
    return [one for one in found if LOG_STORE_ARTIFACT not in one or LOG_STORE_ARTIFACT not in given]


def jar_files(jars: Sequence[str | Path] | None, environment: Mapping[str, str]) -> list[str]:
    """The jars to use instead of packages: ``jars``, else ``DELTARELAY_JARS``. A folder stands for the jars in it."""
    if jars is None:
        named: list[str] = [
            name.strip() for part in environment.get(JARS_VARIABLE, "").split(",") for name in part.split(os.pathsep)
        ]
        origin = JARS_VARIABLE
    else:
        named, origin = [str(jar) for jar in jars], "jars"
    found: list[str] = []
    problems: list[str] = []
    for name in filter(None, named):
        if "://" in name:  # Spark's to fetch
            found.append(name)
            continue
        path = Path(name).expanduser()
        inside = sorted(map(str, path.glob("*.jar"))) if path.is_dir() else [str(path)]
        if not inside:
            problems.append(f"no *.jar in {name}")
        elif not Path(inside[0]).is_file():
            problems.append(f"{name} does not exist")
        found += inside
    if problems:
        raise ConfigError(
            f"{origin}: {'; '.join(problems)}",
            hint="name jar files, or one folder that holds all of them; leave it out to have Spark fetch the jars",
        )
    return found


def session(
    *,
    app_name: str = "deltarelay",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] | None = None,
    log_file: str | Path | None = None,
    storage: Storage | None = None,
) -> SparkSession:
    """A session with Delta: the one that is already active in this process, else a new one.

    ``master`` is ``local[*,4]`` unless spark-submit has started this process. ``storage``: the session is to reach tables
    on S3; nothing is probed here (``infra.s3.probe`` does), and Spark alone hangs long where S3 does not answer.
    With ``log_file`` all that the JVM, Ivy and the Python workers print goes to the end of that file and nothing to our
    stdout or stderr. Whatever goes wrong is a ConfigError that names the cause.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return _reused(SparkSession.builder.getOrCreate())
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        master = (conf or {}).get("spark.master") or master or DEFAULT_MASTER
        # Workers run `python3` from PATH unless told otherwise: outside our environment, without pyarrow.
        # Where spark-submit is in charge, its own choice stands: a cluster may keep Python elsewhere than the driver.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    java: tuple[str, ...] = ()
    if storage is not None:
        storage = located(storage)
        java = java_options(storage, private_folder())
    chosen = settings(master, conf=conf, jars=jars, storage=storage, java=java)
    if chosen.get(_WAREHOUSE, "").startswith(str(private_path())):
        private_folder()  # else Spark makes it, for others to read
    started_with = SparkConf(loadDefaults=False).setAll(list(chosen.items())).setAppName(app_name)
    if SparkContext._gateway is None and not submitted:
        require_java()
        gateway = _start(started_with, log_file, fetches="spark.jars.packages" in chosen)
    else:
        gateway = None
    try:
        SparkContext(conf=started_with, gateway=gateway)
        spark = SparkSession.builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark did not start on {master or 'the master of spark-submit'}: {_first_line(error)}",
            hint=see_output(log_file),
            condition=condition_of(error),
        ) from error
    # On a terminal only what is broken; a log file can hold the warnings too.
    spark.sparkContext.setLogLevel("ERROR" if log_file is None else "WARN")
    if not _has_delta(spark):
        spark.stop()
        raise ConfigError(
            "the jars given to Spark do not contain Delta Lake", hint=f"they must include {delta_package()}"
        )
    _check_java(spark, java)
    return spark


def _check_java(spark: SparkSession, wanted: Sequence[str]) -> None:
    """The log store goes by options of the driver's Java alone. Without them it would use another profile or endpoint, and
    make itself a lock table there."""
    jvm: Any = spark._jvm
    for option in wanted:
        name, _, value = option.removeprefix("-D").partition("=")
        if jvm.java.lang.System.getProperty(name) != value:
            spark.stop()
            raise ConfigError(
                f"the driver's Java was started without {option}, by which the commit lock finds its table",
                hint=f"give it to whoever starts it: spark-submit --driver-java-options '{' '.join(wanted)}'",
            )


def _start(conf: Any, log_file: str | Path | None, *, fetches: bool) -> Any:
    from pyspark import SparkConf

    # These become arguments of Java, which every user of the machine can see; the context gets all settings
    shown = SparkConf(loadDefaults=False).setAll([one for one in conf.getAll() if not is_secret(one[0])])
    try:
        return start_java(shown, log_file, fetches=fetches)
    except ConfigError as error:
        if LOG_STORE_ARTIFACT not in error.message:
            raise
        raise ConfigError(error.message, hint=f"{NO_LOG_STORE}; {see_output(log_file)}") from error


def _reused(spark: SparkSession) -> SparkSession:
    extensions = spark.sparkContext.getConf().get("spark.sql.extensions") or ""
    if EXTENSION not in extensions:
        raise ConfigError(
            "the Spark session that is active in this process has no Delta Lake in it",
            hint=f"start it with spark.sql.extensions={EXTENSION} and spark.sql.catalog.spark_catalog={CATALOG}, "
            "or stop it first",
        )
    return spark


_WAREHOUSE = "spark.sql.warehouse.dir"


def _local_settings(master: str) -> dict[str, str]:
    """What is right on one machine and wrong on a cluster."""
    if one := _LOCAL.fullmatch(master):
        count = one.group(1) or "1"
        cores = (os.cpu_count() or 1) if count == "*" else int(count)
    elif several := _LOCAL_CLUSTER.fullmatch(master):
        cores = int(several.group(1)) * int(several.group(2))
    else:
        return {}
    local = {
        "spark.driver.memory": "2g",
        # Any SQL makes this folder, by default in whatever directory the command is run in
        _WAREHOUSE: str(private_path() / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The defaults (200 and 50 tasks) make every small commit take seconds on one machine.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
        # Else a VACUUM of a small table is ten thousand tasks
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    if root := _source_tree():
        local["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return local


def _source_tree() -> Path | None:
    """The folder that workers must import our packages from, unless these are installed in the environment as files."""
    import cdf

    root = Path(cdf.__file__).resolve().parent.parent
    return None if root.name in ("site-packages", "dist-packages") else root


def _join(ours: str, theirs: str) -> str:
    """Both lists in one, ours first; the caller's version of a Maven package replaces ours."""
    added = [item.strip() for item in theirs.split(",") if item.strip()]
    packages = {item.rsplit(":", 1)[0] for item in added if item.count(":") == 2}
    kept = [item for item in ours.split(",") if item not in added and item.rsplit(":", 1)[0] not in packages]
    return ",".join([*kept, *added])


def _has_delta(spark: SparkSession) -> bool:
    from py4j.java_gateway import JavaClass

    jvm: Any = spark._jvm
    return isinstance(jvm.io.delta.sql.DeltaSparkSessionExtension, JavaClass)


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)

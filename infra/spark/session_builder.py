"""Builds the Spark session with Delta: its jars, its settings, and a clear error when it does not start.

``build_settings`` is pure and makes all decisions; ``session`` starts the JVM with them. The rest of the project receives a
session as an argument.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, condition_of
from cdf.extras import require_classic_spark
from cdf.session import lacks_delta
from infra.s3.packages import LOG_STORE_ARTIFACT, list_excludes, list_packages
from infra.s3.settings import fill_in_region, is_secret
from infra.s3.spark_settings import java_options, spark_conf
from infra.spark.class_archive import archive_options
from infra.spark.java import name_output, require_java, start_java
from infra.spark.resolved_jars import find_resolved_jars, keep_resolved_jars, use_jars
from infra.spark_pairs import delta_package
from infra.temporary import private_folder, private_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.s3.model import Storage

__all__ = ["EXCLUDED", "choose_worker_python", "session", "build_settings"]

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
JARS_VARIABLE = "DELTARELAY_JARS"
NO_LOG_STORE = (
    f"not every registry has {LOG_STORE_ARTIFACT}: copy its jar to this machine and name it with "
    f"`spark: {{conf: {{spark.jars: /path/{LOG_STORE_ARTIFACT}.jar}}}}`, or add it to the jars of `jars:` or "
    "DELTARELAY_JARS; or, where exactly one process writes, set `commits: {kind: single_writer}`"
)
DEFAULT_MASTER = "local[*,4]"
"""All cores, and four tries per task, as on a cluster: plain ``local[*]`` fails the job when the first worker is lost."""

# Delta's jars depend on older Hadoop clients than those in PySpark; only one may be on the class path.
EXCLUDED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
# A caller's value is added to these: replacing them would remove Delta from the session.
_LISTS = ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions")
_PACKAGES = "spark.jars.packages"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WORKER_PYTHON = "spark.pyspark.python"
_DEFAULTS_OF_SPARK_4 = {
    # Spark 3.5 refuses to write dates before 1582, and computes on after an overflow
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


def build_settings(
    master: str | None,
    *,
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] | None = None,
    environment: Mapping[str, str] | None = None,
    storage: Storage | None = None,
    java: Sequence[str] = (),
) -> dict[str, str]:
    """All Spark settings of the session. ``master=None``: spark-submit has chosen the master, the jars and the memory.

    A value of ``conf`` replaces the default; the lists (jars, packages, excludes, extensions) and the options of the
    driver's Java are joined. ``storage``: set where tables are on S3. ``java``: options for the driver's Java.
    """
    environment = os.environ if environment is None else environment
    chosen = {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        **_DEFAULTS_OF_SPARK_4,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        # The default also limits Arrow batches by bytes, which splits wide rows into many small batches.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # Recording the Python line of every column takes a millisecond each, 0.1 s per window
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        # Spark keeps 1,000 of each even without its UI, which is memory in a process that runs for weeks
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.ui.showConsoleProgress": "false",
    }
    if storage is not None:
        chosen |= spark_conf(storage)
    if master is not None:
        chosen["spark.master"] = master
        if given := find_jar_files(jars, environment):
            chosen["spark.jars"] = ",".join(given)
        else:
            chosen[_PACKAGES] = ",".join([delta_package(), *_s3_packages(storage, conf)])
            chosen["spark.jars.excludes"] = ",".join(
                [EXCLUDED, *(list_excludes(storage) if storage is not None else ())]
            )
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
    """Without the log store where ``spark.jars`` has its jar: a registry may not have it."""
    given = (conf or {}).get("spark.jars", "")
    found = list_packages(storage) if storage is not None else []
    return [one for one in found if LOG_STORE_ARTIFACT not in one or LOG_STORE_ARTIFACT not in given]


def find_jar_files(jars: Sequence[str | Path] | None, environment: Mapping[str, str]) -> list[str]:
    """The jars to use instead of packages: ``jars``, else ``DELTARELAY_JARS``. A folder means all jars in it."""
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
        if "://" in name:  # fetched by Spark
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
            hint="name jar files, or one folder with all of them; without this setting Spark fetches the jars",
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
    """A session with Delta: the active one of this process, else a new one.

    ``master`` is ``local[*,4]`` unless spark-submit has started this process. ``storage``: set where the session needs
    tables on S3. Nothing is probed here: call ``infra.s3.probe`` before, because Spark hangs where S3 does not answer.
    With ``log_file`` the output of the JVM, Ivy and the Python workers is appended to that file, and nothing is written to
    stdout or stderr. Raises ConfigError with the cause where the session cannot be started.
    """
    require_classic_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return _reuse_session(SparkSession.builder.getOrCreate())
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        master = (conf or {}).get("spark.master") or master or DEFAULT_MASTER
        # By default workers run `python3` from PATH: outside of this environment, without pyarrow.
        # The choice of spark-submit is kept: on a cluster Python may be elsewhere than on the driver.
        os.environ["PYSPARK_PYTHON"] = choose_worker_python(master, conf or {}, os.environ)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    java: tuple[str, ...] = ()
    if storage is not None:
        storage = fill_in_region(storage)
        java = java_options(storage, private_folder())
    chosen = build_settings(master, conf=conf, jars=jars, storage=storage, java=java)
    starts_java = SparkContext._gateway is None and not submitted
    # Spark searches packages of a user for Python modules too, so Ivy resolves them each time. Arguments of the environment
    # may name other packages, and a cluster gets its jars by other settings
    is_ours = _PACKAGES in chosen and _PACKAGES not in (conf or {}) and "PYSPARK_SUBMIT_ARGS" not in os.environ
    to_resolve = chosen if starts_java and is_ours and (master or "").startswith("local") else None
    if to_resolve is not None and (resolved := find_resolved_jars(to_resolve)):
        chosen, to_resolve = use_jars(chosen, resolved), None
    if chosen.get(_WAREHOUSE, "").startswith(str(private_path())):
        private_folder()  # otherwise Spark creates it, readable for other users
    spark_settings = SparkConf(loadDefaults=False).setAll(list(chosen.items())).setAppName(app_name)
    if starts_java:
        options = archive_options(require_java(), chosen)
        gateway = _start_java(spark_settings, log_file, fetches=bool(chosen.get(_PACKAGES)), options=options)
        if _LOCAL.fullmatch(master or "") and not chosen.get(_PACKAGES):
            # Java has the jars already. Here the context would serve copies of them to its only executor, itself
            spark_settings.set("spark.jars", "")
    else:
        gateway = None
    try:
        SparkContext(conf=spark_settings, gateway=gateway)
        spark = SparkSession.builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark did not start on {master or 'the master of spark-submit'}: {_first_line(error)}",
            hint=name_output(log_file),
            condition=condition_of(error),
        ) from error
    # Only errors on a terminal; warnings as well in a log file.
    spark.sparkContext.setLogLevel("ERROR" if log_file is None else "WARN")
    if not _has_delta(spark):
        spark.stop()
        raise ConfigError(
            "the jars given to Spark do not contain Delta Lake", hint=f"they must include {delta_package()}"
        )
    _check_java(spark, java)
    if to_resolve is not None:
        keep_resolved_jars(to_resolve, (spark.conf.get("spark.jars", "") or "").split(","))
    return spark


def choose_worker_python(master: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The Python of the workers: on this machine that of this process, on a cluster the one that the user names."""
    if master.startswith("local"):
        return sys.executable
    return conf.get(_WORKER_PYTHON) or environment.get("PYSPARK_PYTHON") or sys.executable


def _check_java(spark: SparkSession, wanted: Sequence[str]) -> None:
    """The log store is configured only by options of the driver's Java. Without them it would use another profile or
    endpoint, and create a lock table there."""
    jvm: Any = spark._jvm
    for option in wanted:
        name, _, value = option.removeprefix("-D").partition("=")
        if jvm.java.lang.System.getProperty(name) != value:
            spark.stop()
            raise ConfigError(
                f"the driver's Java was started without {option}, which the commit lock needs to find its table",
                hint=f"start it with spark-submit --driver-java-options '{' '.join(wanted)}'",
            )


def _start_java(conf: Any, log_file: str | Path | None, *, fetches: bool, options: str) -> Any:
    from pyspark import SparkConf

    # These become arguments of Java, visible to every user of the machine; the context receives all settings
    visible = SparkConf(loadDefaults=False).setAll([one for one in conf.getAll() if not is_secret(one[0])])
    try:
        return start_java(visible, log_file, fetches=fetches, options=options)
    except ConfigError as error:
        if LOG_STORE_ARTIFACT not in error.message:
            raise
        raise ConfigError(error.message, hint=f"{NO_LOG_STORE}; {name_output(log_file)}") from error


def _reuse_session(spark: SparkSession) -> SparkSession:
    if lacks_delta(spark):
        raise ConfigError(
            "the active Spark session of this process has no Delta Lake",
            hint=f"start it with spark.sql.extensions={EXTENSION} and spark.sql.catalog.spark_catalog={CATALOG}, "
            "or stop it first",
        )
    return spark


_WAREHOUSE = "spark.sql.warehouse.dir"


def _local_settings(master: str) -> dict[str, str]:
    """Settings for one machine that would be wrong on a cluster."""
    if one := _LOCAL.fullmatch(master):
        count = one.group(1) or "1"
        cores = (os.cpu_count() or 1) if count == "*" else int(count)
    elif several := _LOCAL_CLUSTER.fullmatch(master):
        cores = int(several.group(1)) * int(several.group(2))
    else:
        return {}
    local = {
        "spark.driver.memory": "2g",
        # Any SQL creates this folder, by default in the current directory of the command
        _WAREHOUSE: str(private_path() / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The defaults (200 and 50 tasks) make every small commit take seconds on one machine.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
        # By default a VACUUM of a small table has ten thousand tasks
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    if root := _source_tree():
        local["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return local


def _source_tree() -> Path | None:
    """The folder from which workers must import our packages, unless these are installed as files in the environment."""
    import cdf

    root = Path(cdf.__file__).resolve().parent.parent
    return None if root.name in ("site-packages", "dist-packages") else root


def _join(ours: str, theirs: str) -> str:
    """Both lists joined, the default first; the caller's version of a Maven package replaces the default."""
    added = [item.strip() for item in theirs.split(",") if item.strip()]
    replaced = {item.rsplit(":", 1)[0] for item in added if item.count(":") == 2}
    kept = [item for item in ours.split(",") if item not in added and item.rsplit(":", 1)[0] not in replaced]
    return ",".join([*kept, *added])


def _has_delta(spark: SparkSession) -> bool:
    from py4j.java_gateway import JavaClass

    jvm: Any = spark._jvm
    return isinstance(jvm.io.delta.sql.DeltaSparkSessionExtension, JavaClass)


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)

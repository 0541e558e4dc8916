"""The jars of the embedded Kafka: fetched once with the Ivy inside PySpark, and stored in a separate folder.

They are never mixed with Spark's: a broker needs other versions of the same libraries. Nothing is written to ``~/.m2`` or
Spark's Ivy cache, where an incomplete module would break the next start of Spark.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

from cdf.errors import ConfigError
from infra.spark.java import require_java

__all__ = ["KAFKA_VERSION", "jar_folder", "kafka_jars"]

KAFKA_VERSION = "4.2.0"
_BROKER = f"kafka_2.13-{KAFKA_VERSION}.jar"
_PACKAGES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Kafka uses slf4j 1.7: with the binding for slf4j 2 it would not log, and with both it would not start.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
    "org.apache.logging.log4j:log4j-core:2.25.3",
)
_LIST = "jars.txt"
"""The fetched jars with their sizes; the folder is compared with it at every start."""
_PATIENCE_SECONDS = 900


def jar_folder() -> Path:
    return _cache() / f"kafka-{KAFKA_VERSION}"


def kafka_jars(conf: Mapping[str, str] | None = None) -> list[Path]:
    """The broker's jars; fetched into ``jar_folder()`` if needed, which takes up to a minute.

    Another registry is configured as for Spark, by ``spark.jars.ivySettings`` or ``spark.jars.repositories``, in ``conf`` or
    in ``spark-defaults.conf``; options of Java are read from ``JAVA_TOOL_OPTIONS`` and ``SPARK_SUBMIT_OPTS``. Jars that were
    copied there by hand, without the list of jars, are used unchecked. Several processes may call it at once.
    """
    folder = jar_folder()
    if _is_complete(folder):
        return sorted(folder.glob("*.jar"))
    with _lock_cache():
        if not _is_complete(folder):  # another process may have fetched them meanwhile
            _fetch(folder, {**_read_spark_defaults(), **(conf or {})})
    return sorted(folder.glob("*.jar"))


def _is_complete(folder: Path) -> bool:
    try:
        lines = (folder / _LIST).read_text().splitlines()
    except FileNotFoundError:
        return (folder / _BROKER).is_file()
    except OSError:
        return False
    listed = [line.split(" ", 1) for line in lines]
    return bool(listed) and all(_size(folder / name) == int(size) for size, name in listed)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return -1


def _fetch(folder: Path, conf: Mapping[str, str]) -> None:
    """Fetch into a temporary folder, which replaces the other one once it is complete."""
    for left in folder.parent.glob(
        f"fetching-{folder.name}-*"
    ):  # left by a process that was killed; the lock is held here
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"fetching-{folder.name}-", dir=folder.parent))
    try:
        fetched = work / "jars"
        _run_ivy(work, fetched, conf)
        jars = sorted(fetched.glob("*.jar"))
        (fetched / _LIST).write_text("".join(f"{jar.stat().st_size} {jar.name}\n" for jar in jars))
        if folder.exists():
            folder.rename(work / "before")
        fetched.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy(work: Path, target: Path, conf: Mapping[str, str]) -> None:
    (work / "ivy.xml").write_text(_write_module())
    log_file = jar_folder().with_name(f"{jar_folder().name}.log")
    command = [
        str(require_java().program),
        *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
        *("-cp", str(_find_ivy())),
        "org.apache.ivy.Main",
        *("-settings", str(_find_ivy_settings(work, conf))),
        *("-cache", str(work / "cache")),
        *("-ivy", str(work / "ivy.xml")),
        *("-confs", "default"),
        *("-types", "jar", "bundle"),  # Jackson's jars are bundles
        *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
    ]
    with log_file.open("wb") as output:
        try:
            status = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_PATIENCE_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    if status == 0 and (target / _BROKER).is_file():
        log_file.unlink()
        return
    said = log_file.read_text(errors="replace")
    missing = sorted(set(re.findall(r":: ([\w.-]+#[\w.-]+;[\w.-]+): not found", said)))
    missing += sorted(set(re.findall(r":: ([\w.-]+#[\w.-]+;[\w.-]+!\S+)", said)))
    reason = ", ".join(name.replace("#", ":").replace(";", ":") for name in missing[:5]) or "Ivy failed"
    raise ConfigError(
        f"the jars of the embedded Kafka could not be fetched: {reason}",
        hint=f"the registry is needed once: name your registry with spark.jars.repositories in spark-defaults.conf, or copy "
        f"{jar_folder()} from a machine that has it; Ivy's own output is in {log_file}",
    )


def _write_module() -> str:
    wanted = "".join(
        '    <dependency org="{}" name="{}" rev="{}" conf="default->default"/>\n'.format(*package.split(":"))
        for package in _PACKAGES
    )
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="deltarelay" module="embedded-kafka"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{wanted}  </dependencies>\n"
        "</ivy-module>\n"
    )


def _find_ivy_settings(work: Path, conf: Mapping[str, str]) -> Path:
    """The user's settings file for Ivy, else one with Maven's central registry and the user's registries, like Spark's.

    Without ``~/.m2``: it may contain a .pom without its jar, which Ivy would use.
    """
    if given := conf.get("spark.jars.ivySettings"):
        file = Path(unquote(urlsplit(given).path)) if given.startswith("file:") else Path(given).expanduser()
        if not file.is_file():
            raise ConfigError(f"spark.jars.ivySettings: {file} does not exist", hint="name Ivy's settings file")
        return file
    named = [name.strip() for name in conf.get("spark.jars.repositories", "").split(",") if name.strip()]
    own = "".join(
        f'      <ibiblio name="repository-{number}" m2compatible="true" root={quoteattr(address)}/>\n'
        for number, address in enumerate(named, 1)
    )
    file = work / "ivysettings.xml"
    file.write_text(
        '<ivysettings>\n  <settings defaultResolver="all"/>\n  <resolvers>\n    <chain name="all" returnFirst="true">\n'
        f'      <ibiblio name="central" m2compatible="true"/>\n{own}    </chain>\n  </resolvers>\n</ivysettings>\n'
    )
    return file


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def _find_ivy() -> Path:
    found = sorted((_spark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise ConfigError(f"there is no ivy-*.jar in {_spark_home() / 'jars'}", hint="reinstall PySpark")
    return found[-1]


def _read_spark_defaults() -> dict[str, str]:
    """The jar settings of ``spark-defaults.conf``, read from the same place as spark-submit."""
    folder = os.environ.get("SPARK_CONF_DIR")
    try:
        text = ((Path(folder) if folder else _spark_home() / "conf") / "spark-defaults.conf").read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^[ \t]*(spark\.jars\.\w+)[ \t]*[=:\s][ \t]*(\S.*?)\s*$", text, re.MULTILINE))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltarelay"


@contextmanager
def _lock_cache() -> Iterator[None]:
    """Let one process of this user fetch while the others wait."""
    try:
        _cache().mkdir(parents=True, exist_ok=True)
        lock = os.open(_cache() / f"kafka-{KAFKA_VERSION}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise ConfigError(
            f"the jars of the embedded Kafka cannot be stored in {_cache()} ({type(error).__name__})",
            hint="set XDG_CACHE_HOME to a writable folder",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

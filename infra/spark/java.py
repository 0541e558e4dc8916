"""Finds, checks and starts the Java that Spark runs on, with one clear error when that fails."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdf.errors import ConfigError
from infra.signals import defer_signals
from infra.spark.class_archive import OPTIONS_VARIABLE
from infra.spark.resolved_jars import cache_folder
from infra.spark_pairs import installed_pair

__all__ = [
    "Java",
    "find_java",
    "explain_failed_start",
    "parse_version",
    "require_java",
    "name_output",
    "start_java",
]

HINT = (
    "install Java 17 (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17; "
    "Fedora: dnf install java-21-openjdk-headless) or set JAVA_HOME to an installed one"
)

_QUOTED = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: the program, its full version and its release number."""

    program: Path
    version: str
    release: int

    def __str__(self) -> str:
        return f"Java {self.version} ({self.program})"


def parse_version(text: str) -> tuple[str, int] | None:
    """``("17.0.15", 17)`` from the output of ``java -version``, or None. Old releases have versions such as 1.8."""
    found = _QUOTED.search(text)
    if found is None:
        return None
    numbers = re.findall(r"\d+", found.group(1))
    if not numbers:
        return None
    release = int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])
    return found.group(1), release


def find_java(environment: Mapping[str, str] | None = None) -> Java | None:
    """The Java of ``JAVA_HOME``, else the first on ``PATH``, like Spark's start script; None where there is no Java.

    A ``JAVA_HOME`` without a working Java raises ConfigError: Spark would not ignore it either.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise ConfigError(f"JAVA_HOME is {home}, which contains no bin/java", hint=HINT)
    else:
        on_path = shutil.which("java", path=environment.get("PATH", ""))
        if on_path is None:
            return None
        program = Path(on_path)
    try:
        result = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} cannot be run", hint=HINT) from error
    # Java prints its version on stderr; JAVA_TOOL_OPTIONS and wrappers add lines.
    parsed = parse_version(result.stderr) or parse_version(result.stdout)
    # macOS has a java on PATH that only prints that no Java is installed.
    if result.returncode != 0 or parsed is None:
        if not home:
            return None
        raise ConfigError(f"{program} does not print its version", hint=HINT)
    return Java(program, *parsed)


def require_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark will use. Raises ConfigError where there is none, or Spark and Delta do not support it."""
    java = find_java(environment)
    if java is None:
        raise ConfigError("Java is not installed, and Spark needs it", hint=HINT)
    pair = installed_pair()
    if java.release not in pair.java:
        raise ConfigError(
            f"{java} is not supported: Spark {pair.line} and Delta need Java {' or '.join(map(str, pair.java))}",
            hint=HINT,
        )
    return java


def start_java(conf: Any, log_file: str | Path | None, *, fetches: bool, options: str = "") -> Any:
    """Start Spark's JVM and return PySpark's gateway to it. ``fetches``: Ivy may download jars first. ``options``: for this
    JVM, after those of ``SPARK_SUBMIT_OPTS``.

    PySpark would let the JVM write to the stdout and stderr of this process. With ``log_file`` the JVM and all its workers
    write there, and the streams of this process are never redirected.
    """
    from pyspark import java_gateway

    launch: Any = java_gateway.launch_gateway
    if log_file is None:
        try:
            with _lock_jar_cache(is_needed=fetches), _change_start(java_gateway, options):
                return launch(conf)
        except Exception as error:
            raise explain_failed_start("", None) from error
    Path(log_file).parent.mkdir(parents=True, exist_ok=True)
    with open(log_file, "ab") as output:
        start = output.tell()
        try:
            with _lock_jar_cache(is_needed=fetches), _change_start(java_gateway, options):
                return launch(conf, {"stdout": output, "stderr": output})
        except Exception as error:
            text = Path(log_file).read_bytes()[start:].decode(errors="replace")
            raise explain_failed_start(text, log_file) from error


def explain_failed_start(output: str, log_file: str | Path | None) -> ConfigError:
    """The error for a JVM that did not start, with the reason where its output contains one."""
    unknown = re.findall(r"unresolved dependency: ([^\s,\]]+?):? ", output)
    missing = sorted({*unknown, *re.findall(r"download failed: ([^\s,\]!]+)!", output)})
    if missing or "download failed:" in output:
        names = ", ".join(name.replace("#", ":").replace(";", ":") for name in missing) or "the download failed"
        return ConfigError(
            f"the jars that Spark needs could not be fetched: {names}",
            hint="`deltarelay doctor` checks the network and the local Maven repository; or give the jars by path (jars: in "
            f"deltarelay.yaml, or DELTARELAY_JARS); {name_output(log_file)}",
        )
    if "UnsupportedClassVersionError" in output:
        return ConfigError("Java is too old for Spark", hint=HINT)
    if found := re.search(r"Exception in thread \S+ (?:[\w.]+: )?([^\n]+)|(Could not reserve [^\n]+)", output):
        reason = (found.group(1) or found.group(2)).strip()
        return ConfigError(f"Spark's Java process did not start: {reason}", hint=name_output(log_file))
    return ConfigError("Spark's Java process did not start", hint=name_output(log_file))


def name_output(log_file: str | Path | None) -> str:
    return "see Spark's output" if log_file is None else f"Spark's output is in {log_file}"


@contextmanager
def _change_start(java_gateway: Any, options: str) -> Iterator[None]:
    """Add the options, and kill the JVM when its start is interrupted. PySpark then deletes the folder where the JVM would
    write its port, the JVM fails there, and one of its threads keeps it alive for ever
    (tests/acceptance/test_ctrl_c_at_start.py). PySpark does not return the process in that case, so it is recorded when
    PySpark starts it."""
    start, started = java_gateway.Popen, list[Any]()

    def record_process(*args: Any, preexec_fn: Any = None, env: dict[str, str], **settings: Any) -> Any:
        # A TERM to the process group must not end the JVM before this process has rolled back. It ends with this process,
        # because its stdin is closed
        def ignore_term() -> None:
            if preexec_fn is not None:
                preexec_fn()  # of PySpark, which ignores INT
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        settings["preexec_fn"] = ignore_term
        # Spark's own setting for options would replace that of spark-defaults.conf
        settings["env"] = {**env, OPTIONS_VARIABLE: f"{env.get(OPTIONS_VARIABLE, '')} {options}".strip()}
        with defer_signals():  # an interrupt inside Popen would lose the process, and the JVM would keep running
            started.append(start(*args, **settings))
        return started[-1]

    java_gateway.Popen = record_process
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        java_gateway.Popen = start


@contextmanager
def _lock_jar_cache(*, is_needed: bool) -> Iterator[None]:
    """Let one process of this user fetch jars at a time: two Ivys on a new cache corrupt each other's files."""
    if not is_needed:
        yield
        return
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(cache / "jars.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:  # a read-only home: Ivy's cache is elsewhere or complete, and the lock is optional
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

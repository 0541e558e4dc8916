"""The Java under Spark: found, checked and started, with one clear line when it cannot be."""

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
from infra.signals import undisturbed

__all__ = ["SUPPORTED", "Java", "find_java", "not_started", "parse_version", "require_java", "see_output", "start_java"]

SUPPORTED = (17, 21)
"""The long-term releases that both Spark 4.2 and Delta 4.4 are built and tested with."""

HINT = (
    "install Java 17 (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17; "
    "Fedora: dnf install java-21-openjdk-headless) or set JAVA_HOME to one that is there"
)

_QUOTED = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Java:
    """One Java: the program, its full version as it says it, and its release number."""

    program: Path
    version: str
    release: int

    def __str__(self) -> str:
        return f"Java {self.version} ({self.program})"


def parse_version(text: str) -> tuple[str, int] | None:
    """``("17.0.15", 17)`` from what ``java -version`` prints, or None. Old releases call themselves 1.8."""
    found = _QUOTED.search(text)
    if found is None:
        return None
    numbers = re.findall(r"\d+", found.group(1))
    if not numbers:
        return None
    release = int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])
    return found.group(1), release


def find_java(environment: Mapping[str, str] | None = None) -> Java | None:
    """The Java of ``JAVA_HOME``, else the first on ``PATH``, as Spark's start script decides; None if there is none.

    A ``JAVA_HOME`` without a working Java is an error and not passed over: Spark would not pass over it either.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise ConfigError(f"JAVA_HOME is {home}, but there is no bin/java in it", hint=HINT)
    else:
        on_path = shutil.which("java", path=environment.get("PATH", ""))
        if on_path is None:
            return None
        program = Path(on_path)
    try:
        asked = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} cannot be run", hint=HINT) from error
    # Java says its version on stderr; JAVA_TOOL_OPTIONS and wrappers put lines of their own around it.
    parsed = parse_version(asked.stderr) or parse_version(asked.stdout)
    # macOS has a java on PATH that only says that none is installed.
    if asked.returncode != 0 or parsed is None:
        if not home:
            return None
        raise ConfigError(f"{program} does not tell its version", hint=HINT)
    return Java(program, *parsed)


def require_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark will use; ConfigError when there is none or Spark and Delta are not made for it."""
    java = find_java(environment)
    if java is None:
        raise ConfigError("Java is not installed, and Spark needs it", hint=HINT)
    if java.release not in SUPPORTED:
        raise ConfigError(
            f"{java} is not supported: Spark and Delta need Java {' or '.join(map(str, SUPPORTED))}", hint=HINT
        )
    return java


def start_java(conf: Any, log_file: str | Path | None, *, fetches: bool) -> Any:
    """Starts Spark's JVM and returns PySpark's gateway to it. ``fetches``: Ivy may have to download jars first.

    PySpark would let the JVM write to our own stdout and stderr. With ``log_file`` the JVM and every worker below it
    write there; our own streams are not touched, not even for the time of the start.
    """
    from pyspark import java_gateway

    launch: Any = java_gateway.launch_gateway
    if log_file is None:
        try:
            with _alone(wanted=fetches), _none_left(java_gateway):
                return launch(conf)
        except Exception as error:
            raise not_started("", None) from error
    Path(log_file).parent.mkdir(parents=True, exist_ok=True)
    with open(log_file, "ab") as output:
        start = output.tell()
        try:
            with _alone(wanted=fetches), _none_left(java_gateway):
                return launch(conf, {"stdout": output, "stderr": output})
        except Exception as error:
            said = Path(log_file).read_bytes()[start:].decode(errors="replace")
            raise not_started(said, log_file) from error


def not_started(said: str, log_file: str | Path | None) -> ConfigError:
    """The reason for a JVM that did not come up, as far as its output ``said`` tells it."""
    unknown = re.findall(r"unresolved dependency: ([^\s,\]]+?):? ", said)
    missing = sorted({*unknown, *re.findall(r"download failed: ([^\s,\]!]+)!", said)})
    if missing or "download failed:" in said:
        names = ", ".join(name.replace("#", ":").replace(";", ":") for name in missing) or "the download failed"
        return ConfigError(
            f"the jars that Spark needs could not be fetched: {names}",
            hint="`deltarelay doctor` looks at the network and for what gets into Ivy's way; or give them by path (jars: in "
            f"deltarelay.yaml, or DELTARELAY_JARS); {see_output(log_file)}",
        )
    if "UnsupportedClassVersionError" in said:
        return ConfigError("Java is too old for Spark", hint=HINT)
    if found := re.search(r"Exception in thread \S+ (?:[\w.]+: )?([^\n]+)|(Could not reserve [^\n]+)", said):
        reason = (found.group(1) or found.group(2)).strip()
        return ConfigError(f"Spark's Java process did not start: {reason}", hint=see_output(log_file))
    return ConfigError("Spark's Java process did not start", hint=see_output(log_file))


def see_output(log_file: str | Path | None) -> str:
    return "Spark's own output tells more" if log_file is None else f"Spark's own output is in {log_file}"


@contextmanager
def _none_left(java_gateway: Any) -> Iterator[None]:
    """A start that is broken off leaves no JVM: PySpark takes away the folder in which that was to tell its port, the JVM
    fails there, and a thread of its own keeps it for ever (tests/acceptance/test_ctrl_c_at_start.py). Nobody else knows it:
    what PySpark starts is noted here."""
    start, started = java_gateway.Popen, list[Any]()

    def noted(*args: Any, preexec_fn: Any = None, **settings: Any) -> Any:
        # A TERM to the process group must not end the JVM before we have rolled back. It ends with us: its stdin closes
        def deaf() -> None:
            if preexec_fn is not None:
                preexec_fn()  # PySpark's, which does the same for INT
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        settings["preexec_fn"] = deaf
        with undisturbed():  # an interrupt inside Popen would lose the process, and the JVM would run on
            started.append(start(*args, **settings))
        return started[-1]

    java_gateway.Popen = noted
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
def _alone(*, wanted: bool) -> Iterator[None]:
    """Only one process of this user fetches jars at a time: two Ivys on one fresh cache break each other's files."""
    if not wanted:
        yield
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltarelay"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = os.open(cache / "jars.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:  # a read-only home: then Ivy's cache is elsewhere or full already, and the lock is a courtesy
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

"""The jars that Delta needs: which they are, where they are on this machine, and what is wrong with a set of them.

Spark's own Ivy fetches them into ``~/.ivy2.5.2`` on the first start, unless they are given by path. Jars are recognised
by what is in them and not by their names, which differ between Ivy, Maven and whoever copied them.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cdf.errors import ConfigError
from cdf.result import Result
from infra.java import require_java, start_java
from infra.spark import delta_package, settings

__all__ = [
    "ARTIFACTS",
    "CENTRAL",
    "Jar",
    "JarSet",
    "Poison",
    "cached",
    "examined",
    "fetch",
    "ivy_folder",
    "poisoned",
    "user_home",
]

CENTRAL = "https://repo1.maven.org/maven2"

ARTIFACTS = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
"""What comes with ``delta-spark``, under the same version."""

_CLASSES = {
    "delta-spark": "io/delta/sql/DeltaSparkSessionExtension.class",
    "delta-storage": "io/delta/storage/LogStore.class",
}
"""Without these Delta does not start. The others serve tables of a Unity Catalog."""
_HADOOP = "org/apache/hadoop/fs/FileSystem.class"
_DELTA_GROUP = "io.delta"
_GROUPS = (
    "com/fasterxml/jackson",
    "com/github/luben",
    "com/google/code/findbugs",
    "commons-pool",
    "io/airlift",
    "io/delta",
    "io/unitycatalog",
    "javax/annotation",
    "org/antlr",
    "org/apache/logging",
    "org/apache/parquet",
    "org/locationtech",
    "org/roaringbitmap",
    "org/slf4j",
    "org/xerial",
)
"""Where Delta's jars and theirs stand in a Maven repository."""
_VERSION = re.compile(r"^(?:Implementation|Specification)-Version:\s*(\S+)", re.MULTILINE)
_HOME = re.compile(r"-Duser\.home=(\S+)")


@dataclass(frozen=True, slots=True)
class Jar(Result):
    file: str
    bytes: int


@dataclass(frozen=True, slots=True)
class JarSet(Result):
    """Some jars, held against what the installed PySpark and delta-spark need."""

    package: str
    jars: tuple[Jar, ...]
    problems: tuple[str, ...]
    """What would keep Delta from working with them; each says what helps."""

    @property
    def total_bytes(self) -> int:
        return sum(jar.bytes for jar in self.jars)


def user_home(environment: Mapping[str, str] | None = None) -> Path:
    """The home that Java sees, where Ivy and Maven keep their files: the user's own, whatever HOME says."""
    environment = os.environ if environment is None else environment
    if told := _HOME.findall(environment.get("JAVA_TOOL_OPTIONS", "")):
        return Path(told[-1])
    home = pwd.getpwuid(os.getuid()).pw_dir
    return Path(home if len(home) >= 3 else environment.get("HOME", home))


def ivy_folder(home: Path, conf: Mapping[str, str] | None = None) -> Path:
    told = (conf or {}).get("spark.jars.ivy")
    return Path(told).expanduser() if told else home / ".ivy2.5.2"


# ── what is there ────────────────────────────────────────────────────────────────────────────────────────────────────


def cached(ivy: Path) -> list[Jar]:
    """Delta's own jars as Ivy has put them there; empty unless all of them are, for then Ivy would fetch again."""
    _, artifact, version = delta_package().split(":")
    files = [ivy / "jars" / f"{_DELTA_GROUP}_{name}-{version}.jar" for name in (artifact, *ARTIFACTS)]
    known = [ivy / "cache" / _DELTA_GROUP / name / f"ivy-{version}.xml" for name in (artifact, *ARTIFACTS)]
    return [_jar(file) for file in files] if all(file.is_file() for file in (*files, *known)) else []


def examined(files: Iterable[str | Path]) -> JarSet:
    """Look into jars given by path: Delta in the right version, once, and no second Hadoop client."""
    wanted = metadata.version("delta-spark")
    package = delta_package()
    found: dict[str, list[str]] = {name: [] for name in _CLASSES}
    jars, problems = [], []
    for file in map(Path, files):
        try:
            jars.append(_jar(file))
            with zipfile.ZipFile(file) as archive:
                names = set(archive.namelist())
                version = _version(archive)
        except (OSError, zipfile.BadZipFile) as error:
            problems.append(f"{file} cannot be read as a jar ({type(error).__name__}): copy it again")
            continue
        for artifact, marker in _CLASSES.items():
            if marker in names:
                found[artifact].append(file.name)
                if version is not None and version != wanted:
                    problems.append(f"{file.name} is {artifact} {version}, but {wanted} is needed: replace it")
        if _HADOOP in names:
            problems.append(f"{file.name} brings a Hadoop client, and PySpark has its own: take it out")
    line = package.split(":")[1].removeprefix("delta-spark_")
    for artifact, holders in found.items():
        if not holders:
            name = f"{artifact}_{line}" if artifact == "delta-spark" else artifact
            problems.append(f"{name}-{wanted}.jar is missing: `deltarelay jars fetch DIR` gets all of them")
        if len(holders) > 1:
            problems.append(f"{artifact} is there {len(holders)} times ({', '.join(holders)}): keep {wanted} alone")
    problems += _other_line(found["delta-spark"], line)
    return JarSet(package, tuple(jars), tuple(problems))


def _other_line(names: list[str], line: str) -> list[str]:
    """Delta is built anew for every Spark; the jar's name alone says for which one."""
    told = [(name, match[1]) for name in names if (match := re.search(r"delta-spark_([\d.]+_[\d.]+)-", name))]
    return [f"{name} is made for another Spark: take the one of {line}" for name, other in told if other != line]


def _version(archive: zipfile.ZipFile) -> str | None:
    try:
        manifest = archive.read("META-INF/MANIFEST.MF").decode(errors="replace")
    except KeyError:
        return None
    found = _VERSION.search(manifest)
    return found.group(1) if found else None


def _jar(file: Path) -> Jar:
    return Jar(str(file), file.stat().st_size)


# ── what gets into Ivy's way ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Poison:
    """A folder of the local Maven repository with a description and no jar: Ivy looks there first, and gives up."""

    folder: Path
    certain: bool
    """It is one of Delta's own jars in the very version that is needed."""


def poisoned(home: Path) -> list[Poison]:
    repository = home / ".m2" / "repository"
    wanted = metadata.version("delta-spark")
    artifacts = {delta_package().split(":")[1], *ARTIFACTS}
    found = []
    for group in _GROUPS:
        for description in sorted((repository / group).rglob("*.pom")):
            folder = description.parent
            if description.with_suffix(".jar").is_file() or _is_parent(description):
                continue
            ours = group == "io/delta" and folder.parent.name in artifacts
            if not ours or folder.name == wanted:
                found.append(Poison(folder, certain=ours))
    return found


def _is_parent(description: Path) -> bool:
    """A description of other descriptions never had a jar."""
    try:
        return "<packaging>pom</packaging>" in re.sub(r"\s+", "", description.read_text(errors="replace"))
    except OSError:
        return False


# ── fetching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch(folder: Path, *, conf: Mapping[str, str] | None = None, log_file: Path) -> JarSet:
    """Have Spark's Ivy resolve the jars, and copy them into the folder. Starts a JVM, but no Spark in it."""
    from pyspark import SparkConf

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made ({type(error).__name__})", hint="choose another folder") from error
    about_jars = {name: value for name, value in (conf or {}).items() if name.startswith("spark.jars")}
    chosen = settings("local[1]", conf=about_jars, jars=[])
    require_java()
    gateway = start_java(SparkConf(loadDefaults=False).setAll(list(chosen.items())), log_file, fetches=True)
    try:
        resolved = str(gateway.jvm.java.lang.System.getProperty("spark.jars") or "")
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # which is what ends the process
        gateway.proc.wait(timeout=60)
    sources = [Path(unquote(urlsplit(name).path)) for name in resolved.split(",") if name]
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    return examined(sorted(folder.glob("*.jar")))

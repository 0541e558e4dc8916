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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cdf.errors import ConfigError
from cdf.result import Result
from infra.s3.address import is_s3
from infra.s3.model import Storage
from infra.s3.settings import LOG_STORE_ARTIFACT, located, packages
from infra.spark.java import require_java, start_java
from infra.spark.session_builder import NO_LOG_STORE, delta_package, settings

if TYPE_CHECKING:
    from infra.config.models import Project

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
    "storage_of",
    "user_home",
    "uses_s3",
]

CENTRAL = "https://repo1.maven.org/maven2"

ARTIFACTS = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
"""What comes with ``delta-spark``, under the same version."""

_CLASSES = {
    "delta-spark": "io/delta/sql/DeltaSparkSessionExtension.class",
    "delta-storage": "io/delta/storage/LogStore.class",
}
"""Without these Delta does not start. The others serve tables of a Unity Catalog."""
_S3_CLASSES = {
    "hadoop-aws": "org/apache/hadoop/fs/s3a/S3AFileSystem.class",
    "s3": "software/amazon/awssdk/services/s3/S3Client.class",
    "s3-transfer-manager": "software/amazon/awssdk/transfer/s3/S3TransferManager.class",
    "apache-client": "software/amazon/awssdk/http/apache/ApacheHttpClient.class",
    "netty-nio-client": "software/amazon/awssdk/http/nio/netty/NettyNioAsyncHttpClient.class",
    "sts": "software/amazon/awssdk/services/sts/StsClient.class",
    LOG_STORE_ARTIFACT: "io/delta/storage/S3DynamoDBLogStore.class",
    "aws-java-sdk-dynamodb": "com/amazonaws/services/dynamodbv2/AmazonDynamoDBClient.class",
    "aws-java-sdk-sts": "com/amazonaws/services/securitytoken/AWSSecurityTokenService.class",
}
"""By their artifacts, what the packages for S3 are known by; Amazon's bundle holds the classes of its modules as well."""
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


def cached(ivy: Path, storage: Storage | None = None) -> list[Jar]:
    """Delta's own jars as Ivy has put them there, and with ``storage`` those for S3; empty unless all of them are.

    For then Ivy would fetch again.
    """
    _, artifact, version = delta_package().split(":")
    wanted = [f"{_DELTA_GROUP}:{name}:{version}" for name in (artifact, *ARTIFACTS)]
    found = [in_ivy(ivy, package) for package in wanted + (packages(storage) if storage is not None else [])]
    return [_jar(file) for file in found if file is not None] if all(found) else []


def in_ivy(ivy: Path, package: str) -> Path | None:
    """The jar of a Maven coordinate, where Ivy has it and knows about it."""
    group, artifact, version = package.split(":")
    file = ivy / "jars" / f"{group}_{artifact}-{version}.jar"
    known = ivy / "cache" / group / artifact / f"ivy-{version}.xml"
    return file if file.is_file() and known.is_file() else None


def uses_s3(project: Project) -> bool:
    """Whether a source or a target's folder is on S3, or the file has a ``storage`` block: somebody means to use it."""
    sources = [one.source.table for one in project.pipelines.values()]
    folders = [getattr(one.settings, "path", None) for one in project.connections.values()]
    return "storage" in project.model_fields_set or any(is_s3(str(one)) for one in (*sources, *folders))


def storage_of(project: Project | None, tables: Sequence[str] = ()) -> Storage | None:
    """The settings for S3 where anything is there; None: no jar and no setting for it is needed."""
    if project is not None and uses_s3(project):
        return project.storage
    needed = any(is_s3(table) for table in tables)
    return (project.storage if project is not None else Storage()) if needed else None


def examined(files: Iterable[str | Path], storage: Storage | None = None) -> JarSet:
    """Look into jars given by path: Delta in the right version, once, and no second Hadoop client.

    With ``storage`` the jars for S3 have to be among them as well.
    """
    wanted = metadata.version("delta-spark")
    package = delta_package()
    found: dict[str, list[str]] = {name: [] for name in _CLASSES}
    s3 = {} if storage is None else {package.split(":")[1]: package for package in packages(storage)}
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
        for artifact in [artifact for artifact in s3 if _S3_CLASSES[artifact] in names]:
            package_of = s3.pop(artifact)
            needed = package_of.rsplit(":", 1)[1]
            if artifact == "hadoop-aws" and version not in (None, needed):
                problems.append(f"{file.name} is hadoop-aws {version}, but PySpark carries Hadoop {needed}: replace it")
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
    for artifact, missing in s3.items():
        name = missing.split(":", 1)[1].replace(":", "-")
        helps = NO_LOG_STORE if artifact == LOG_STORE_ARTIFACT else "`deltarelay jars fetch DIR` gets all of them"
        problems.append(f"{name}.jar, for tables on S3, is missing: {helps}")
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


def fetch(
    folder: Path, *, conf: Mapping[str, str] | None = None, log_file: Path, storage: Storage | None = None
) -> JarSet:
    """Have Spark's Ivy resolve the jars, and copy them into the folder. Starts a JVM, but no Spark in it.

    With ``storage`` those for S3 as well. A registry without the log store is one of the problems that are told: the rest
    is fetched all the same.
    """
    from pyspark import SparkConf

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made ({type(error).__name__})", hint="choose another folder") from error
    about_jars = {name: value for name, value in (conf or {}).items() if name.startswith("spark.jars")}
    storage = None if storage is None else located(storage)
    chosen = settings("local[1]", conf=about_jars, jars=[], storage=storage)
    require_java()

    def started() -> Any:
        return start_java(SparkConf(loadDefaults=False).setAll(list(chosen.items())), log_file, fetches=True)

    try:
        gateway = started()
    except ConfigError as error:
        if LOG_STORE_ARTIFACT not in error.message:
            raise
        kept = [one for one in chosen["spark.jars.packages"].split(",") if LOG_STORE_ARTIFACT not in one]
        chosen["spark.jars.packages"] = ",".join(kept)
        gateway = started()
    try:
        resolved = str(gateway.jvm.java.lang.System.getProperty("spark.jars") or "")
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # which is what ends the process
        gateway.proc.wait(timeout=60)
    sources = [Path(unquote(urlsplit(name).path)) for name in resolved.split(",") if name]
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    return examined(sorted(folder.glob("*.jar")), storage)

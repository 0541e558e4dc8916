"""The jars that Delta needs: their names, their location on this machine, and problems of a given set of jars.

Spark's Ivy fetches them into ``~/.ivy2.5.2`` (``~/.ivy2`` up to Spark 3.5) on the first start, unless they are given by
path. Jars are recognised by their content, because their file names differ between Ivy and Maven.
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
from typing import Any
from urllib.parse import unquote, urlsplit

from cdf.errors import ConfigError
from cdf.result import Result
from infra.s3.model import Storage
from infra.s3.packages import LOG_STORE_ARTIFACT, list_packages
from infra.s3.settings import fill_in_region
from infra.spark.java import require_java, start_java
from infra.spark.session_builder import NO_LOG_STORE, build_settings
from infra.spark_pairs import delta_artifacts, delta_package, installed_pair

__all__ = [
    "CENTRAL",
    "Jar",
    "JarSet",
    "IncompleteArtifact",
    "find_cached_jars",
    "examine_jars",
    "fetch_jars",
    "ivy_folder",
    "find_incomplete_artifacts",
    "user_home",
]

CENTRAL = "https://repo1.maven.org/maven2"

_CLASSES = {
    "delta-spark": "io/delta/sql/DeltaSparkSessionExtension.class",
    "delta-storage": "io/delta/storage/LogStore.class",
}
"""Delta does not start without these. The others are for tables of a Unity Catalog."""
_S3_CLASSES = {
    "hadoop-aws": "org/apache/hadoop/fs/s3a/S3AFileSystem.class",
    "s3": "software/amazon/awssdk/services/s3/S3Client.class",
    "s3-transfer-manager": "software/amazon/awssdk/transfer/s3/S3TransferManager.class",
    "apache-client": "software/amazon/awssdk/http/apache/ApacheHttpClient.class",
    "netty-nio-client": "software/amazon/awssdk/http/nio/netty/NettyNioAsyncHttpClient.class",
    "sts": "software/amazon/awssdk/services/sts/StsClient.class",
    "aws-java-sdk-s3": "com/amazonaws/services/s3/AmazonS3Client.class",
    LOG_STORE_ARTIFACT: "io/delta/storage/S3DynamoDBLogStore.class",
    "aws-java-sdk-dynamodb": "com/amazonaws/services/dynamodbv2/AmazonDynamoDBClient.class",
    "aws-java-sdk-sts": "com/amazonaws/services/securitytoken/AWSSecurityTokenService.class",
}
"""A class of each package for S3; Amazon's bundle contains the classes of its modules as well."""
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
"""The folders of Delta's jars and their dependencies in a Maven repository."""
_VERSION = re.compile(r"^(?:Implementation|Specification)-Version:\s*(\S+)", re.MULTILINE)
_HOME = re.compile(r"-Duser\.home=(\S+)")


@dataclass(frozen=True, slots=True)
class Jar(Result):
    file: str
    bytes: int


@dataclass(frozen=True, slots=True)
class JarSet(Result):
    """A set of jars, compared with the requirements of the installed PySpark and delta-spark."""

    package: str
    jars: tuple[Jar, ...]
    problems: tuple[str, ...]
    """What would keep Delta from working with them; each with its remedy."""

    @property
    def total_bytes(self) -> int:
        return sum(jar.bytes for jar in self.jars)


def user_home(environment: Mapping[str, str] | None = None) -> Path:
    """The home folder as Java determines it, where Ivy and Maven keep their files: of the user, regardless of HOME."""
    environment = os.environ if environment is None else environment
    if options := _HOME.findall(environment.get("JAVA_TOOL_OPTIONS", "")):
        return Path(options[-1])
    home = pwd.getpwuid(os.getuid()).pw_dir
    return Path(home if len(home) >= 3 else environment.get("HOME", home))


def ivy_folder(home: Path, conf: Mapping[str, str] | None = None) -> Path:
    folder = (conf or {}).get("spark.jars.ivy")
    return Path(folder).expanduser() if folder else home / installed_pair().ivy_folder


# ── available jars ───────────────────────────────────────────────────────────────────────────────────────────────────


def find_cached_jars(ivy: Path, storage: Storage | None = None) -> list[Jar]:
    """Delta's jars in Ivy's cache, and with ``storage`` those for S3. Empty where one is missing: Ivy would fetch them."""
    _, artifact, version = delta_package().split(":")
    wanted = [f"{_DELTA_GROUP}:{name}:{version}" for name in (artifact, *delta_artifacts())]
    found = [find_in_ivy(ivy, package) for package in wanted + (list_packages(storage) if storage is not None else [])]
    return [_to_jar(file) for file in found if file is not None] if all(found) else []


def find_in_ivy(ivy: Path, package: str) -> Path | None:
    """The jar of a Maven coordinate, where Ivy's cache has both the jar and its description."""
    group, artifact, version = package.split(":")
    file = ivy / "jars" / f"{group}_{artifact}-{version}.jar"
    known = ivy / "cache" / group / artifact / f"ivy-{version}.xml"
    return file if file.is_file() and known.is_file() else None


def examine_jars(files: Iterable[str | Path], storage: Storage | None = None) -> JarSet:
    """Check jars that are given by path: Delta in the right version, once, and no second Hadoop client.

    With ``storage`` the jars for S3 must be among them as well.
    """
    wanted = metadata.version("delta-spark")
    package = delta_package()
    found: dict[str, list[str]] = {name: [] for name in _CLASSES}
    s3 = {} if storage is None else {package.split(":")[1]: package for package in list_packages(storage)}
    jars, problems = [], []
    for file in map(Path, files):
        try:
            jars.append(_to_jar(file))
            with zipfile.ZipFile(file) as archive:
                names = set(archive.namelist())
                version = _read_version(archive)
        except (OSError, zipfile.BadZipFile) as error:
            problems.append(f"{file} cannot be read as a jar ({type(error).__name__}): copy it again")
            continue
        for artifact, marker in _CLASSES.items():
            if marker in names:
                found[artifact].append(file.name)
                if version is not None and version != wanted:
                    problems.append(f"{file.name} is {artifact} {version}, but {wanted} is required: replace it")
        for artifact in [artifact for artifact in s3 if _S3_CLASSES[artifact] in names]:
            package_of = s3.pop(artifact)
            needed = package_of.rsplit(":", 1)[1]
            if artifact == "hadoop-aws" and version not in (None, needed):
                problems.append(
                    f"{file.name} is hadoop-aws {version}, but PySpark contains Hadoop {needed}: replace it"
                )
        if _HADOOP in names:
            problems.append(f"{file.name} contains a Hadoop client, and PySpark has its own: remove it")
    line = package.split(":")[1].removeprefix("delta-spark_")  # 4.2_2.13, or 2.12
    for artifact, holders in found.items():
        if not holders:
            name = f"{artifact}_{line}" if artifact == "delta-spark" else artifact
            problems.append(f"{name}-{wanted}.jar is missing: fetch all jars with `deltarelay jars fetch DIR`")
        if len(holders) > 1:
            problems.append(f"{artifact} is present {len(holders)} times ({', '.join(holders)}): keep {wanted} only")
    problems += _find_other_lines(found["delta-spark"], line)
    for artifact, missing in s3.items():
        name = missing.split(":", 1)[1].replace(":", "-")
        remedy = NO_LOG_STORE if artifact == LOG_STORE_ARTIFACT else "fetch all jars with `deltarelay jars fetch DIR`"
        problems.append(f"{name}.jar, for tables on S3, is missing: {remedy}")
    return JarSet(package, tuple(jars), tuple(problems))


def _find_other_lines(names: list[str], line: str) -> list[str]:
    """Delta has a build for each Spark release, and only the name of the jar shows which."""
    lines = [(name, match[1]) for name in names if (match := re.search(r"delta-spark_([\d._]+)-", name))]
    return [f"{name} is built for another Spark: use the jar for {line}" for name, other in lines if other != line]


def _read_version(archive: zipfile.ZipFile) -> str | None:
    try:
        manifest = archive.read("META-INF/MANIFEST.MF").decode(errors="replace")
    except KeyError:
        return None
    found = _VERSION.search(manifest)
    return found.group(1) if found else None


def _to_jar(file: Path) -> Jar:
    return Jar(str(file), file.stat().st_size)


# ── incomplete artifacts ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class IncompleteArtifact:
    """A folder of the local Maven repository with a .pom and no jar: Ivy looks there first, and fails."""

    folder: Path
    certain: bool
    """It is one of Delta's jars in the required version."""


def find_incomplete_artifacts(home: Path) -> list[IncompleteArtifact]:
    repository = home / ".m2" / "repository"
    wanted = metadata.version("delta-spark")
    artifacts = {delta_package().split(":")[1], *delta_artifacts()}
    found = []
    for group in _GROUPS:
        for description in sorted((repository / group).rglob("*.pom")):
            folder = description.parent
            if description.with_suffix(".jar").is_file() or _is_parent(description):
                continue
            ours = group == "io/delta" and folder.parent.name in artifacts
            if not ours or folder.name == wanted:
                found.append(IncompleteArtifact(folder, certain=ours))
    return found


def _is_parent(description: Path) -> bool:
    """A parent .pom has no jar."""
    try:
        return "<packaging>pom</packaging>" in re.sub(r"\s+", "", description.read_text(errors="replace"))
    except OSError:
        return False


# ── fetching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch_jars(
    folder: Path, *, conf: Mapping[str, str] | None = None, log_file: Path, storage: Storage | None = None
) -> JarSet:
    """Resolve the jars with Spark's Ivy, and copy them into the folder. Starts a JVM, but no Spark.

    With ``storage`` also those for S3. A registry without the log store is reported as a problem, and the other jars are
    fetched.
    """
    from pyspark import SparkConf

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be created ({type(error).__name__})", hint="choose another folder"
        ) from error
    jar_conf = {name: value for name, value in (conf or {}).items() if name.startswith("spark.jars")}
    storage = None if storage is None else fill_in_region(storage)
    chosen = build_settings("local[1]", conf=jar_conf, jars=[], storage=storage)
    require_java()

    def start() -> Any:
        return start_java(SparkConf(loadDefaults=False).setAll(list(chosen.items())), log_file, fetches=True)

    try:
        gateway = start()
    except ConfigError as error:
        if LOG_STORE_ARTIFACT not in error.message:
            raise
        kept = [one for one in chosen["spark.jars.packages"].split(",") if LOG_STORE_ARTIFACT not in one]
        chosen["spark.jars.packages"] = ",".join(kept)
        gateway = start()
    try:
        resolved = str(gateway.jvm.java.lang.System.getProperty("spark.jars") or "")
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the process
        gateway.proc.wait(timeout=60)
    sources = [Path(unquote(urlsplit(name).path)) for name in resolved.split(",") if name]
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    return examine_jars(sorted(folder.glob("*.jar")), storage)

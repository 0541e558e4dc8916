"""``storage show``: the storage options in the format of other programs, without secrets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cdf.errors import ConfigError
from cdf.result import Result
from infra.s3.address import S3Address
from infra.s3.model import SingleWriterCommits, Storage
from infra.s3.packages import LOG_STORE_ARTIFACT, list_excludes, list_packages, uses_lock_table
from infra.s3.settings import delta_rs_options, fill_in_region, mask_secrets
from infra.s3.spark_settings import java_options, spark_conf
from infra.spark.session_builder import EXCLUDED
from infra.spark_pairs import delta_package

__all__ = ["StorageSettings", "Target", "show_settings"]

Target = Literal["spark", "spark-submit", "databricks", "delta-rs"]

_JAVA = "spark.driver.extraJavaOptions"
_SINGLE_WRITER = "single_writer is a promise: with a second writer commits are lost without an error"
_READ_ONLY = "there is no `commits:` block: reading needs no lock, and deltarelay does not write to S3"
_LOG_STORE = (
    f"{LOG_STORE_ARTIFACT} is not in every registry; where Spark cannot fetch it, put the jar into the folder of `jars:` "
    "or DELTARELAY_JARS"
)
_REGIONS = "replace FOLDER by the folder of a regions file, which names the endpoint of the lock table"
_DATABRICKS = (
    "Databricks coordinates its writers by its own commit service: the settings of the lock table do not apply there",
    "no other cluster may write to a table that Databricks writes to: S3DynamoDBLogStore is for open-source Spark",
    "access to the bucket is granted by an instance profile or an external location of Unity Catalog, not by keys",
)


@dataclass(frozen=True, slots=True)
class StorageSettings(Result):
    """What ``deltarelay storage show`` prints. Secrets are replaced by ``****``."""

    target: str
    settings: dict[str, str]
    packages: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In the format of the target program, after the notes as comments."""
        notes = [f"# {note}" for note in self.notes]
        if self.target == "spark-submit":
            words = [f"--packages {','.join(self.packages)}", f"--exclude-packages {','.join(self.excludes)}"]
            words += [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in self.settings.items()]
            return "\n".join([*notes, " \\\n".join(words)])
        if self.target == "spark":
            jars = {"spark.jars.packages": ",".join(self.packages), "spark.jars.excludes": ",".join(self.excludes)}
            return "\n".join([*notes, *(f"{name} {value}" for name, value in {**self.settings, **jars}.items())])
        separator = " " if self.target == "databricks" else "="
        return "\n".join([*notes, *(f"{name}{separator}{value}" for name, value in self.settings.items())])


def show_settings(storage: Storage, target: str, *, addresses: Sequence[str] = ()) -> StorageSettings:
    """``addresses``: the tables to access; delta-rs gets the options for the bucket of the first."""
    if target not in get_args(Target):
        raise ConfigError(f"the format {target} is unknown", hint=f"choose {', '.join(get_args(Target))}")
    risks = (_READ_ONLY,) if storage.commits is None else ()
    if isinstance(storage.commits, SingleWriterCommits):
        risks = (_SINGLE_WRITER,)
    if target == "delta-rs":
        return _delta_rs(storage, addresses[0] if addresses else None, risks)
    if target == "databricks":
        plain = storage.model_copy(update={"commits": None})
        ours = ("spark.hadoop.fs.s3.", "spark.hadoop.fs.s3n.", "spark.sql.")
        kept = {
            name: value
            for name, value in spark_conf(plain, addresses).items()
            if name.endswith((".endpoint", ".endpoint.region", ".path.style.access", ".connection.ssl.enabled"))
            and not name.startswith(ours)
        }
        return StorageSettings(target, mask_secrets(kept), notes=_DATABRICKS)
    found = fill_in_region(storage)
    settings = spark_conf(found, addresses)
    notes = risks + ((_LOG_STORE,) if uses_lock_table(found) else ())
    if options := java_options(found, None):
        settings[_JAVA] = " ".join(options)
        notes += (_REGIONS,) if "fileOverride" in settings[_JAVA] else ()
    jars = (delta_package(), *list_packages(found))  # the complete list: it replaces an existing one
    return StorageSettings(target, mask_secrets(settings), jars, (*EXCLUDED.split(","), *list_excludes(found)), notes)


def _delta_rs(storage: Storage, address: str | None, risks: tuple[str, ...]) -> StorageSettings:
    address = address or "s3a://bucket"
    try:
        options, notes = delta_rs_options(storage, address, writing=storage.commits is not None), risks
    except ConfigError as error:
        # reading may be possible where writing is not; otherwise the same error is raised again
        options = delta_rs_options(storage, address)
        notes = (f"for reading only: {error.message}",)
    notes += (f"for the bucket {S3Address.parse(address).bucket}",) if storage.s3.buckets else ()
    return StorageSettings("delta-rs", mask_secrets(options), notes=notes)

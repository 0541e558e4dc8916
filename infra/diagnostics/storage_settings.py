"""The storage options as a person pastes them elsewhere; no secret among them."""

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
from infra.spark.session_builder import EXCLUDED, delta_package

__all__ = ["Shown", "Target", "show"]

Target = Literal["spark", "spark-submit", "databricks", "delta-rs"]

_JAVA = "spark.driver.extraJavaOptions"
_ALONE = "single_writer is a promise: a second process that writes makes commits vanish without an error"
_NOBODY = "there is no `commits:` block: reading needs no lock, and nothing of ours writes to S3 that way"
_LOG_STORE = (
    f"{LOG_STORE_ARTIFACT} is not in every registry; where Spark cannot fetch it, put the jar into the folder that `jars:` "
    "or DELTARELAY_JARS names"
)
_REGIONS = "FOLDER stands for the place of a regions file, which names the endpoint of the lock table"
_DATABRICKS = (
    "Databricks keeps its writers apart by a commit service of its own: the settings of the lock table do not apply there",
    "no cluster elsewhere may write to a table that Databricks writes to: S3DynamoDBLogStore is for open-source Spark",
    "rights on the bucket come from an instance profile or an external location of Unity Catalog, not from keys",
)


@dataclass(frozen=True, slots=True)
class Shown(Result):
    """What ``deltarelay storage show`` prints. Secrets stand there as ``****``."""

    target: str
    settings: dict[str, str]
    packages: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In the form of its target, with the notes as comments in front."""
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


def show(storage: Storage, target: str, *, addresses: Sequence[str] = ()) -> Shown:
    """``addresses``: the tables it is about; delta-rs is told about the first one's bucket."""
    if target not in get_args(Target):
        raise ConfigError(f"{target} is not known here", hint=f"choose {', '.join(get_args(Target))}")
    stakes = (_NOBODY,) if storage.commits is None else ()
    if isinstance(storage.commits, SingleWriterCommits):
        stakes = (_ALONE,)
    if target == "delta-rs":
        return _delta_rs(storage, addresses[0] if addresses else None, stakes)
    if target == "databricks":
        plain = storage.model_copy(update={"commits": None})
        ours = ("spark.hadoop.fs.s3.", "spark.hadoop.fs.s3n.", "spark.sql.")
        kept = {
            name: value
            for name, value in spark_conf(plain, addresses).items()
            if name.endswith((".endpoint", ".endpoint.region", ".path.style.access", ".connection.ssl.enabled"))
            and not name.startswith(ours)
        }
        return Shown(target, mask_secrets(kept), notes=_DATABRICKS)
    found = fill_in_region(storage)
    settings = spark_conf(found, addresses)
    notes = stakes + ((_LOG_STORE,) if uses_lock_table(found) else ())
    if options := java_options(found, None):
        settings[_JAVA] = " ".join(options)
        notes += (_REGIONS,) if "fileOverride" in settings[_JAVA] else ()
    jars = (delta_package(), *list_packages(found))  # the whole list: what is pasted takes the place of another one
    return Shown(target, mask_secrets(settings), jars, (*EXCLUDED.split(","), *list_excludes(found)), notes)


def _delta_rs(storage: Storage, address: str | None, stakes: tuple[str, ...]) -> Shown:
    address = address or "s3a://bucket"
    try:
        options, notes = delta_rs_options(storage, address, writing=storage.commits is not None), stakes
    except ConfigError as error:
        # reading is possible where writing is not; where neither is, the same error comes again
        options = delta_rs_options(storage, address)
        notes = (f"for reading alone: {error.message}",)
    notes += (f"for the bucket {S3Address.parse(address).bucket}",) if storage.s3.buckets else ()
    return Shown("delta-rs", mask_secrets(options), notes=notes)

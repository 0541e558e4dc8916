"""The states of one table, rebuilt from checkpoints and commit files with Spark's public API only.

Rules of Delta's protocol: the newest complete checkpoint at or before a version, then every commit file after it; the
newest action of a kind wins. Compacted logs are not needed, because they repeat commit files that must exist.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import quote_name
from cdf.changes.commits import Metadata
from cdf.errors import FeatureNotSupported, TableNotFound, condition_of
from cdf.source.commit import parse_metadata, parse_protocol, version_gone
from cdf.source.commit_files import translate_log_errors
from cdf.source.log_readers import LatestVersion, TableStates
from cdf.source.log_segments import V2_CHECKPOINT, Segment, choose_segment
from cdf.source.public_files import PublicFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PublicStates"]

_STATE = ("metaData", "protocol", "txn")
_NO_TABLE = {
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_ONLY_OPERATION",
}


@dataclass(frozen=True, slots=True)
class _State:
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    transactions: Mapping[str, int]


class PublicStates(TableStates):
    """The states of the table at ``location``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = location
        self._files = PublicFiles(spark, location)
        self._known: tuple[object, _State] | None = None

    def read_latest(self) -> LatestVersion:
        version = self._read_version()
        names = self._files.list_names()
        time = names.get(f"{version:020d}.json")
        if time is None:
            raise FeatureNotSupported(
                f"version {version} of {self._location} is not in its log: a catalog manages the commits of the table",
                hint="replicate a table whose commits are all in its own _delta_log",
            )
        state = self._read_state(version, names)
        return LatestVersion(version, time, parse_metadata(state.metadata), parse_protocol(state.protocol))

    def read_metadata(self, version: int) -> Metadata:
        return parse_metadata(self._read_state(version, self._files.list_names()).metadata)

    def read_transaction(self, application: str) -> int | None:
        return self._read_state(self._read_version(), self._files.list_names()).transactions.get(application)

    def read_size_bytes(self, version: int) -> int:
        from pyspark.sql import functions as F

        segment = self._choose(version, self._files.list_names())
        actions = self._files.read_actions(segment.commits, ("add", "remove"))
        sizes: dict[tuple[str, str | None], int] = {}
        with translate_log_errors(self._location):
            for frame in self._read_checkpoint(segment, "add"):
                rows = frame.select(
                    F.get_json_object("action", "$.path").alias("path"),
                    F.get_json_object("action", "$.deletionVector").alias("vector"),
                    F.get_json_object("action", "$.size").cast("long").alias("size"),
                ).collect()
                sizes |= {(row["path"], _name_vector(json.loads(row["vector"] or "null"))): row["size"] for row in rows}
        for _, kind, action in actions:
            file = (action["path"], _name_vector(action.get("deletionVector")))
            sizes[file] = int(action["size"]) if kind == "add" else 0
        return sum(sizes.values())

    def write_checkpoint(self) -> None:
        raise self._refuse("writing a checkpoint")

    def clean_up(self, *, at_once: bool) -> None:  # noqa: ARG002
        raise self._refuse("cleaning up the log")

    def _refuse(self, what: str) -> FeatureNotSupported:
        return FeatureNotSupported(
            f"{what} of {self._location} needs Delta's own classes, which this session does not reach",
            hint="use a classic session with the Delta jars: local, spark-submit, or on the cluster's driver",
        )

    def _read_version(self) -> int:
        """The latest version, from Delta: in some storages only Delta sees a commit that was not yet copied into the log."""
        table = f"delta.{quote_name(self._location)}"
        with translate_log_errors(self._location):
            try:
                row = self._spark.sql(f"describe history {table} limit 1").select("version").first()
            except Exception as error:
                if condition_of(error) not in _NO_TABLE:
                    raise
                row = None
        if row is None:
            raise TableNotFound(
                f"there is no Delta table at {self._location}", hint="check the path or name of the table"
            )
        return int(row["version"])

    def _choose(self, version: int, names: Mapping[str, dt.datetime]) -> Segment:
        if (segment := choose_segment(list(names), version)) is None:
            raise version_gone(self._location, version)
        return segment

    def _read_state(self, version: int, names: Mapping[str, dt.datetime]) -> _State:
        segment = self._choose(version, names)
        files = (*segment.checkpoint, *(f"{commit:020d}.json" for commit in segment.commits))
        # Commit files do not change, but a table may be deleted and created again
        same = tuple((name, names[name]) for name in files)
        if self._known is None or self._known[0] != same:
            self._known = same, self._rebuild(segment, version)
        return self._known[1]

    def _rebuild(self, segment: Segment, version: int) -> _State:
        actions: list[tuple[str, Any]] = []
        with translate_log_errors(self._location):
            for frame in self._read_checkpoint(segment, *_STATE):
                actions += [(row["kind"], json.loads(row["action"])) for row in frame.collect()]
        actions += [(kind, action) for _, kind, action in self._files.read_actions(segment.commits, _STATE)]
        newest = dict(actions)
        if "metaData" not in newest or "protocol" not in newest:
            raise version_gone(self._location, version)
        transactions = {action["appId"]: int(action["version"]) for kind, action in actions if kind == "txn"}
        return _State(newest["metaData"], newest["protocol"], transactions)

    def _read_checkpoint(self, segment: Segment, *kinds: str) -> list[DataFrame]:
        """(kind, action as JSON) of a checkpoint; those of a v2 checkpoint are also in its sidecar files."""
        if not segment.checkpoint:
            return []
        frames = [self._read_file(list(segment.checkpoint), *kinds)]
        if "add" in kinds and V2_CHECKPOINT.fullmatch(segment.checkpoint[0]):
            sidecars = self._read_file(list(segment.checkpoint), "sidecar").collect()
            names = [f"_sidecars/{json.loads(row['action'])['path']}" for row in sidecars]
            frames += [self._read_file(names, *kinds)] if names else []
        return frames

    def _read_file(self, names: list[str], *kinds: str) -> DataFrame:
        from pyspark.sql import functions as F

        paths = [self._files.path(name) for name in names]
        if names[0].endswith(".json"):
            lines = self._spark.read.text(paths)
            found = [
                F.struct(F.lit(kind).alias("kind"), F.get_json_object("value", f"$.{kind}").alias("action"))
                for kind in kinds
            ]
        else:
            lines = self._spark.read.parquet(*paths)
            found = [
                F.struct(F.lit(kind).alias("kind"), F.to_json(kind).alias("action"))
                for kind in kinds
                if kind in lines.columns
            ]
        each = lines.select(F.explode(F.array(*found)).alias("found")).select("found.*")
        return each.where(F.col("action").isNotNull())


def _name_vector(vector: Mapping[str, Any] | None) -> str | None:
    """The unique name of a deletion vector, by which Delta distinguishes the states of one file."""
    if vector is None:
        return None
    name = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return name if vector.get("offset") is None else f"{name}@{vector['offset']}"

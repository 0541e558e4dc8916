"""The folder with encrypted rows that are about to replace plaintext rows of the payload.

Encrypting twice gives different ciphertexts. So the rows are written into a folder of their own first; then a record
names the folder and has a root over the new hashes; then the rows are merged into the payload. After a crash, the next
runner finishes the merge if the record exists, and removes the folder if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from audit.trail.record_kinds import is_folder_name
from audit.trail.tables import PAYLOAD, TrailTables
from cdf.errors import VerificationError
from cdf.session import is_connect, require_classic

if TYPE_CHECKING:
    from delta.tables import DeltaTable

__all__ = ["folder_path", "merge_folder", "remove_folders"]


def folder_path(tables: TrailTables, name: str) -> str:
    return f"{tables.path}/_sealing/{name}".rstrip("/")


def merge_folder(tables: TrailTables, name: str) -> None:
    """Merge the rows of the folder into the payload and remove the folder. May be called again.

    ``name``: from a record. Raises VerificationError for other names, because a record must not remove other files."""
    from pyspark.sql import functions as F

    if not is_folder_name(name):
        raise VerificationError(
            f"a record of the trail at {tables.path} names a folder of encrypted rows that no runner creates",
            hint="`deltarelay audit verify` reports what is altered",
        )
    require_classic(tables.spark, f"merging encrypted rows into the trail at {tables.path}")
    if not _exists(tables, name):
        return
    schema = tables.read_current(PAYLOAD).select("id", "salt", "row_hash", "row", "sealed").schema
    # With a schema, because a runner that was killed while it removed the folder may have left no file in it
    encrypted = tables.spark.read.schema(schema).parquet(folder_path(tables, name))
    differs = "stored.id = new.id and stored.row_hash <> new.row_hash"
    stored = tables.read_current(PAYLOAD).select("id", "row_hash").alias("stored")
    if not stored.join(encrypted.alias("new"), F.expr(differs), "left_semi").isEmpty():

        def merge_rows(payload: DeltaTable) -> None:
            merge = payload.alias("stored").merge(encrypted.alias("new"), differs)
            merge.whenMatchedUpdate(
                set={column: f"new.{column}" for column in encrypted.columns if column != "id"}
            ).execute()

        tables.change(PAYLOAD, merge_rows, about={"removal": "sealing"})
    remove_folders(tables, name)


def remove_folders(tables: TrailTables, name: str = "") -> None:
    """Remove the folder of this name; without a name, all of them. Over Spark Connect they stay: no reader reads them."""
    if not is_connect(tables.spark) and _exists(tables, name):
        files, path = _hadoop_path(tables, name)
        files.delete(path, True)
        if name and not len(files.listStatus(path.getParent())):
            files.delete(path.getParent(), False)


def _exists(tables: TrailTables, name: str) -> bool:
    files, path = _hadoop_path(tables, name)
    return bool(files.exists(path))


def _hadoop_path(tables: TrailTables, name: str) -> tuple[Any, Any]:
    """The file system and the path."""
    spark: Any = tables.spark
    path = spark._jvm.org.apache.hadoop.fs.Path(folder_path(tables, name))
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path

"""A structured streaming query over the change feed, with a new checkpoint each time it is started."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, ConfigError
from cdf.read_errors import translate
from cdf.session import setting

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from cdf.pipeline.micro_batches import MicroBatches
    from cdf.source.table import ChangeFeed

__all__ = ["FeedQuery", "check_trigger", "is_active", "stop_query"]

ALL_FILES = 2**31 - 1
"""``maxFilesPerTrigger``: its default is 1,000, and Delta then divides commits that add and remove more files."""
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def check_trigger(trigger: Mapping[str, Any]) -> dict[str, Any]:
    if list(trigger) == ["availableNow"] and trigger["availableNow"] is True:
        return dict(trigger)
    if list(trigger) == ["processingTime"] and isinstance(trigger["processingTime"], str):
        return dict(trigger)
    raise ConfigError(
        "the trigger cannot be used",
        hint='give {"processingTime": "1 second"} to follow, or {"availableNow": True} to stop after catching up',
    )


class FeedQuery:
    """Starts streaming queries over one feed. ``checkpoint``: the parent folder of checkpoints; None: a temporary one."""

    def __init__(self, feed: ChangeFeed, name: str, *, checkpoint: str | None, trigger: Mapping[str, Any]) -> None:
        self._feed = feed
        self._name = name
        self._checkpoint = checkpoint
        self._trigger = check_trigger(trigger)

    @property
    def ends_by_itself(self) -> bool:
        return "availableNow" in self._trigger

    @contextmanager
    def create_checkpoint(self) -> Iterator[str]:
        """A folder for one query. Spark needs it while the query runs; it is deleted afterwards."""
        if self._checkpoint is None:
            with tempfile.TemporaryDirectory(prefix="deltarelay-checkpoint-", ignore_cleanup_errors=True) as folder:
                yield f"file://{folder}"
            return
        folder = f"{self._checkpoint.rstrip('/')}/{uuid.uuid4().hex}"
        try:
            yield folder
        finally:
            self._delete(folder)

    def start(self, batches: MicroBatches, version: int, checkpoint: str) -> StreamingQuery:
        """Start a query at the position, not after it: Delta refuses to start at a version that does not exist yet."""
        try:
            stream = self._feed.stream(start_version=version, max_files_per_trigger=ALL_FILES)
            writer = stream.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
            # Query names must be unique among the running queries, and two pipelines may have the same name
            name = f"deltarelay {self._name} {uuid.uuid4().hex[:8]}"
            with self._plain_checkpoint_files():
                return writer.queryName(name).trigger(**self._trigger).start()
        except CdfError:
            raise
        except Exception as error:
            raise translate(error, table=self._feed.table, first=version, last=version) from error

    def _plain_checkpoint_files(self) -> AbstractContextManager[None]:
        """In a temporary folder Spark needs no checksums and renames, which take 0.1 s in every micro-batch."""
        if self._checkpoint is not None:
            return nullcontext()
        return setting(self._feed.spark, CHECKPOINT_FILES, PLAIN_CHECKPOINT_FILES)

    def _delete(self, folder: str) -> None:
        with suppress(Exception):
            jvm: Any = self._feed.spark._jvm
            path = jvm.org.apache.hadoop.fs.Path(folder)
            path.getFileSystem(self._feed.spark._jsc.hadoopConfiguration()).delete(path, True)


def is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception:  # the JVM is gone
        return False


def stop_query(query: StreamingQuery, timeout: float) -> None:
    """Stop a query, but return after ``timeout`` seconds: Spark waits endlessly for an uninterruptible micro-batch."""

    def stop() -> None:
        with suppress(Exception):
            query.stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(timeout)

"""What users decided about the pipeline of a trail: the Delta table ``controls`` beside its tables, written with delta-rs.

Its row is a revision and a JSON document. It is no part of the trail's proof: it says what runners should do, not what
happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, SinkUnavailable
from cdf.sink import Controls

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["change_controls", "read_controls"]

TRIES = 10


def read_controls(path: str, options: Mapping[str, str] | None = None) -> Controls:
    """Empty where nothing was decided, and on storage without settings for delta-rs. Raises SinkUnavailable."""
    table = None if _is_out_of_reach(path, options) else _open_table(path, options)
    return Controls() if table is None else Controls.from_document(_read_row(path, table)[1])


def change_controls(
    path: str, change: Callable[[Controls], Controls], options: Mapping[str, str] | None = None
) -> Controls:
    """Replace the document; again, if another process has replaced it meanwhile. Raises SinkUnavailable and ConfigError."""
    import pyarrow as pa
    from deltalake import write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    if _is_out_of_reach(path, options):
        raise ConfigError(
            f"the trail at {path} stores no pauses and approvals",
            hint="only trails on a local disk and on S3 do: stop its runner instead, or raise the limit in `brakes`",
        )
    for _ in range(TRIES):
        table = _open_table(path, options)
        try:
            if table is None:
                first = pa.table({"revision": [0], "document": ["{}"]})
                write_deltalake(_locate(path), first, mode="ignore", storage_options=dict(options or {}))
                continue
            revision, document = _read_row(path, table)
            controls = change(Controls.from_document(document))
            new: dict[str, Any] = {"revision": revision + 1, "document": json.dumps(controls.to_document())}
            # Replaces the row only if it is still the one that was read
            done = table.update(new_values=new, predicate=f"revision = {revision}")
            if done["num_updated_rows"]:
                return controls
        except CommitFailedError:
            continue
        except (DeltaError, OSError) as error:
            raise _unavailable(path, error) from error
    raise SinkUnavailable(
        f"other processes keep changing the pauses and approvals of the trail at {path}", hint="try again", target=path
    )


def _locate(path: str) -> str:
    return f"{path}/controls"


def _is_out_of_reach(path: str, options: Mapping[str, str] | None) -> bool:
    """A runner must not depend on a second way to its storage, for which the settings of Spark say nothing."""
    return "://" in path and not path.startswith("file://") and options is None


def _open_table(path: str, options: Mapping[str, str] | None) -> DeltaTable | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    location = _locate(path)
    try:
        if "://" not in location and not Path(location, "_delta_log").is_dir():
            return None
        return DeltaTable(location, storage_options=dict(options or {}))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise _unavailable(path, error) from error


def _read_row(path: str, table: DeltaTable) -> tuple[int, Any]:
    """→ revision, document"""
    from deltalake.exceptions import DeltaError

    try:
        # Two processes that create the table at the same time write a first row each
        row = max(table.to_pyarrow_table().to_pylist(), key=lambda one: one["revision"])
        return row["revision"], json.loads(row["document"])
    except (DeltaError, OSError, KeyError, TypeError, ValueError) as error:
        raise _unavailable(path, error) from error


def _unavailable(path: str, error: Exception) -> SinkUnavailable:
    return SinkUnavailable(
        f"the pauses and approvals of the trail at {path} cannot be read or written ({type(error).__name__})",
        hint="check that the storage is available and that this user may use it",
        target=path,
    )

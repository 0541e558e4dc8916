"""Where a trail stands, without a JVM: from the log of its ledger, by delta-rs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.record import object_in
from cdf.errors import SinkUnavailable
from cdf.sink import Position

__all__ = ["LOOK_BACK", "NO_RECORDS", "standing"]

NO_RECORDS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CREATE TABLE", "REORG"})
"""Operations on the ledger that neither add records nor take them away."""

LOOK_BACK = 50
"""So many commits of the ledger are looked at for one that tells; upkeep and idle runs stand between them."""


def standing(path: str, options: Mapping[str, str] | None = None) -> Position:
    """The position of the trail below ``path``; empty where there is none. ``options``: delta-rs' for its storage.

    What is pending is not told: that is between the trail and who writes it. Raises SinkUnavailable.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    location = f"{path}/ledger"
    try:
        if "://" not in location and not Path(location, "_delta_log").is_dir():
            return Position(None)
        ledger = DeltaTable(location, storage_options=dict(options or {}))
        for commit in ledger.history(LOOK_BACK):
            told = object_in(commit.get("userMetadata"))
            if "state" in told:
                return Position(told["state"]["version"], told["state"]["table_id"])
            if "opened" not in told and commit.get("operation") not in NO_RECORDS:
                break
        return _read(ledger)
    except TableNotFoundError:
        return Position(None)
    except (DeltaError, OSError, KeyError, TypeError, ValueError) as error:
        raise SinkUnavailable(
            f"the trail at {path} cannot be looked at ({type(error).__name__})",
            hint="is its storage there, and may this user read it?",
            target=path,
        ) from error


def _read(ledger: Any) -> Position:
    """From its last record of a commit: two columns of a table with one short row per commit of the source."""
    import pyarrow.compute as pc

    rows = ledger.to_pyarrow_table(columns=["version", "record"]).drop_null()
    if rows.num_rows == 0:
        return Position(None)
    last = rows.filter(pc.equal(rows["version"], pc.max(rows["version"]))).column("record")[0].as_py()
    record = object_in(last)
    return Position(record["version"], record["table_id"])

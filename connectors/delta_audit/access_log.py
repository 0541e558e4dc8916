"""Copies the key registry's records of who decrypted values of a trail into the trail's ledger.

The registry hands out no key without such a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.trail.ledger import append_notes, format_instant
from audit.trail.redaction import shorten_text
from audit.trail.tables import LEDGER

if TYPE_CHECKING:
    from audit.encryption.key_registry import Registry
    from audit.signing.signer import Signer
    from audit.trail.ledger_state import State
    from audit.trail.tables import TrailTables

__all__ = ["record_readings"]


def record_readings(
    tables: TrailTables, state: State, registry: Registry, trail: str, *, signer: Signer | None
) -> State:
    """Write a record for each reading that the trail does not have yet, and return the state after it.

    ``trail``: its address. May be called again after a failure: no reading is recorded twice.
    """
    from pyspark.sql import functions as F

    readings = registry.list_new_readings(trail)
    if not readings:
        return state
    identity = (F.get_json_object("record", f"$.{name}") for name in ("reading", "read_at"))
    # With the time: a registry that was restored or recreated uses the same numbers again
    known = {
        (row[0], row[1]) for row in tables.read_current(LEDGER).where("kind = 'reading'").select(*identity).collect()
    }
    new = [
        {
            "reading": reading.id,
            "read_at": format_instant(reading.at),
            "reader": shorten_text(reading.reader),
            "role": shorten_text(reading.role),
            "purpose": shorten_text(reading.purpose),
            "question": shorten_text(reading.question),
            "keys": reading.keys,
        }
        for reading in readings
        if (str(reading.id), format_instant(reading.at)) not in known
    ]
    if new:
        state = append_notes(tables, state, new, kind="reading", signer=signer)
    registry.mark_readings_recorded([reading.id for reading in readings])
    return state

"""Who has read what a trail has sealed: from the registry, which hands no key out without a record, into the trail."""

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

__all__ = ["note_readings"]


def note_readings(tables: TrailTables, state: State, registry: Registry, trail: str, *, signer: Signer | None) -> State:
    """A record for each reading that the trail does not have yet; → where it stands then. After a crash none comes twice."""
    from pyspark.sql import functions as F

    readings = registry.list_new_readings(trail)
    if not readings:
        return state
    told = (F.get_json_object("record", f"$.{name}") for name in ("reading", "read_at"))
    # With its time: a registry that was restored, or made anew, gives numbers again
    known = {(row[0], row[1]) for row in tables.read_current(LEDGER).where("kind = 'reading'").select(*told).collect()}
    new = [
        {
            "reading": one.id,
            "read_at": format_instant(one.at),
            "reader": shorten_text(one.reader),
            "role": shorten_text(one.role),
            "purpose": shorten_text(one.purpose),
            "question": shorten_text(one.question),
            "keys": one.keys,
        }
        for one in readings
        if (str(one.id), format_instant(one.at)) not in known
    ]
    if new:
        state = append_notes(tables, state, new, kind="reading", signer=signer)
    registry.mark_readings_recorded([one.id for one in readings])
    return state

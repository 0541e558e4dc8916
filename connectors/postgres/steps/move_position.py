"""Moving the position by hand: a move that would make it incorrect is refused, and each move is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from cdf.errors import WindowOutOfOrder
from cdf.sink import Position
from connectors.postgres.client import Session
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.state import position as positions
from connectors.postgres.target.reflection import reflect

__all__ = ["find_move_problems", "move_by_hand"]

Connection = psycopg.Connection[Any]


def find_move_problems(
    connection: Connection, name: TargetName, inspect: Callable[[], Sequence[str]], *, before: Position
) -> list[str]:
    """What would prevent a run after the move. ``inspect`` inspects the target as if the position were moved."""
    if before.version is None:
        target = reflect(connection, name)
        if target is None or (target.can_write and target.empty):
            return [f"{name} holds no rows that could be taken over: `deltarelay run` fills it from a snapshot"]
    return [*inspect(), *positions.position_log_problems(connection)]


def move_by_hand(
    session: Session, *, present: Position, before: Position, to: Position, action: str, reason: str | None
) -> None:
    """Raises WindowOutOfOrder if the ``present`` position is not the one that the user saw (``before``)."""
    if present != before:
        raise WindowOutOfOrder(
            f"{session.target} moved on to another position in the meantime",
            hint="nothing was changed: check `deltarelay position show`, and decide again",
            position=present.version,
        )
    with session.errors("moving the position"):
        connection, lease = session.main(), session.require_lease()
        with connection.transaction():
            positions.lock_position(connection, lease, expected=before.version, first=None)
            positions.record_rows(connection, session.target)
            positions.move_and_record(connection, lease, before=before, to=to, action=action, reason=reason)

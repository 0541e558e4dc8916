"""The position moved by hand: what would make it a lie is refused, and who did it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from cdf.errors import WindowOutOfOrder
from connectors.postgres import position as positions
from connectors.postgres.target.ddl import reflect
from connectors.postgres.write.reload import log_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cdf.sink import Position
    from connectors.postgres.client import Session
    from connectors.postgres.target.ddl import TargetName

__all__ = ["move_problems", "move_position"]

Connection = psycopg.Connection[Any]


def move_problems(
    connection: Connection, name: TargetName, inspect: Callable[[], Sequence[str]], *, before: Position
) -> list[str]:
    """What would stop a run once the position is moved: ``inspect`` looks at the target as if it were."""
    if before.version is None:
        target = reflect(connection, name)
        if target is None or (target.can_write and target.empty):
            return [f"{name} holds no rows that could be taken over: `deltarelay run` fills it from a snapshot"]
    return [*inspect(), *log_problems(connection)]


def move_position(
    session: Session, *, stands: Position, before: Position, to: Position, action: str, reason: str | None
) -> None:
    if stands != before:
        raise WindowOutOfOrder(
            f"{session.target} moved on to another position in the meantime",
            hint="nothing was changed: look at `deltarelay position show`, and decide again",
            position=stands.version,
        )
    with session.errors("moving the position"):
        connection, lease = session.main(), session.held()
        with connection.transaction():
            positions.lock_position(connection, lease, expected=before.version, first=None)
            positions.record_rows(connection, session.target)
            positions.move_recorded(connection, lease, before=before, to=to, action=action, reason=reason)

"""The options with limits, which `status` and `serve` share; their meaning is that of ``infra.config.limits``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import read_duration

if TYPE_CHECKING:
    from infra.config.limits import Limits

__all__ = ["LimitOptions", "StatusLimitOptions"]


@dataclass(frozen=True, slots=True)
class LimitOptions:
    max_lag: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Limit: a commit is not applied for longer than this, as in 15m."),
    ] = None
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Limit: no run succeeded for longer than this, as in 1h.")
    ] = None
    min_feed_days: Annotated[
        float | None,
        typer.Option(min=0, help="Limit: VACUUM may remove feed files that are still needed within these days."),
    ] = None
    max_dead_letters: Annotated[
        int | None, typer.Option(min=0, help="Limit: more rows than this are dead letters.")
    ] = None

    def read(self) -> Limits:
        """The limits that are given. Raises typer.BadParameter."""
        from infra.config.limits import Limits

        return Limits(**{name: _read(name, value) for name, value in self.given.items()})

    @property
    def given(self) -> dict[str, Any]:
        """The options that are given, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StatusLimitOptions(LimitOptions):
    stuck_after: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Limit: a runner holds the lease and does not move the position for longer than this, although "
            "there are versions to apply (without this option, the state is `stuck` after 15m).",
        ),
    ] = None
    max_unanchored: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Limit: a commit in an audit trail is covered by no anchor for longer than this, as in 1h.",
        ),
    ] = None
    max_overdue_erasures: Annotated[
        int | None,
        typer.Option(min=0, help="Limit: more erasure requests than this are past their due date and not certified."),
    ] = None


def _read(name: str, value: Any) -> Any:
    return read_duration(f"--{name.replace('_', '-')}", value) if isinstance(value, str) else value

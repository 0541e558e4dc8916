"""The contract between the pipeline and every sink.

A sink makes changes durable. It keeps its own **position**: the last source version whose effect it holds. Data and
position become durable in one step, so the position is correct after any crash, and the position alone decides where a
run continues. The pipeline calls a sink from one thread, in this order::

    inspect*  →  open  →  load (only while the position is empty)  →  apply, apply, …  →  close

A closed sink may be opened again. ``load`` and ``apply`` on a sink that is not open raise a ``PositionError``. A sink
checks a window in this order: the fence, the table id, whether it is a replay, whether it follows the position. Spark's
own errors may quote row values: a sink may keep them as an error's ``__cause__``, never in its text or fields.

Write a sink as a subclass (``class MySink(Sink)``). It must implement the first six members; the others have a default.
The pipeline calls all of them, so a sink that is not a subclass must implement every member. ``cdf.sink.features`` lists
what a sink may offer beyond this. ``cdf.testing.SinkConformance`` tests every promise made here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cdf.sink.records import Applied, Capabilities, Inspection, Position, Source

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window

__all__ = ["Sink"]


@runtime_checkable
class Sink(Protocol):
    """A target of changes. Everything a sink raises is a ``cdf.errors.CdfError``; no error carries row or key values."""

    @property
    def capabilities(self) -> Capabilities: ...

    def inspect(self, source: Source) -> Inspection:
        """Report the target's position, every problem at once, and the DDL that would run.

        Reads only and takes no lease. May be called at any time, also while another runner works and after ``close``.
        ``source.schema`` is the schema that the target will have, ``source.standing`` the one it should have now. Raises
        ``SinkUnavailable`` if the target cannot be reached.
        """
        ...

    def open(self, source: Source) -> Position:
        """Acquire the lease, create what may be created, and return the target's position.

        Raises ``LeaseHeld`` while another runner is alive (after waiting at most one lease, which is how long a killed
        runner's lease lasts), and ``TargetNotReady`` with all problems if ``inspect`` would list any. Opening takes over:
        the previous holder of the lease can neither ``load`` nor ``apply`` any more (``Fenced``).
        """
        ...

    def load(self, snapshot: Snapshot) -> Applied:
        """Store a whole table. Allowed only while the position is empty (otherwise ``WindowOutOfOrder``).

        State sinks: afterwards the target equals the snapshot and the position is its version, in one step that readers
        see as a whole or not at all. An interrupted load leaves nothing and is called again. Null or duplicate keys are
        refused (``KeyViolation`` with the fields ``null_rows`` and ``duplicate_keys``). History sinks: the rows are
        appended once, as a baseline, whatever their keys. ``Applied.inserts`` is the number of rows. Returning means
        durable.
        """
        ...

    def apply(self, window: Window) -> Applied:
        """Apply one window. Afterwards its effect is stored exactly once and the position is ``window.last``.

        A window that ends at or before the position changes nothing (``replayed``). A window that does not start at
        position + 1 is refused (``WindowOutOfOrder``): an empty state sink refuses every window because it must be loaded
        first; the first window of an empty history sink may start anywhere. A window with another table id than the
        position's is refused (``TableReplaced``). State sinks apply ``window.net()``, whose rows have no order. A window
        without rows moves the position. Returning means durable; raising means that nothing happened, or that
        ``Position.pending`` names the unfinished window. Never called concurrently. A Spark job over the window's rows
        can fail because of the rows: ``window.failure(error)`` translates that error. Call ``window.confirm()`` after
        reading the rows and before making them durable.
        """
        ...

    def close(self) -> None:
        """Release the lease and all resources. Safe to call twice and after a failure; never raises."""
        ...

    # ── methods with a default ───────────────────────────────────────────────────────────────────────────────────────

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        """Return None if the sink can follow a schema change, otherwise a short reason.

        The reason may be empty: the change says it all. Reads nothing. Default: the sink follows the kinds in
        ``capabilities.schema_changes``, except for a column of the key.
        """
        if change.kind not in self.capabilities.schema_changes or change.column in key:
            return ""
        return None

    def way(self, window: Window) -> str:  # noqa: ARG002
        """Name the strategy by which the sink would apply a window; ``plan`` shows it.

        Reads only, needs no ``open``. Default: ``changes``.
        """
        return "changes"

    def announce(self, window: Window) -> None:  # noqa: ARG002
        """Called before ``apply`` of a window with the window after it: the very object that the next ``apply`` gets.

        A sink may prepare that window while it makes the current one durable. After a failure another window may follow,
        or none. An announced window must not be visible, nor raise an error, before its own ``apply``. Default: nothing.
        """
        return

    def cancel(self) -> None:
        """Called from another thread: make a running ``load`` or ``apply`` fail soon, with nothing applied.

        Never raises; has no effect if nothing is running. Default: nothing, the step runs to its end.
        """
        return

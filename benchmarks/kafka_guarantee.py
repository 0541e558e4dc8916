"""What does exactly once cost?

The window of ``kafka_events``, by the same sink, once as it is and once with an idempotent producer without transactions
in the place of its transactional ones: in the lanes, whose events and records are flushed where they would be committed,
and in the runner that keeps the position. Nothing else differs: same records, same order, same settings, same looks at the
ledger. An order left to chance. The ratio is that of events per second, of the medians.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from confluent_kafka import Producer

from benchmarks.answer import Answer
from benchmarks.kafka_state import fresh, timed, window
from benchmarks.lab import Lab, median
from connectors.kafka import client
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state import lease
from connectors.kafka.state.position import LaneProgress
from connectors.kafka.write import lane_writer as lanes
from connectors.kafka.write import strategies

__all__ = ["measure"]

AIM = 0.9


class Plain(client.TransactionalProducer):
    """The same producer without a transactional id: shuts nobody out, and what it sends is there at once."""

    def __init__(
        self, cluster: client.Cluster, name: str, *, max_bytes: int | None = None, seconds: float | None = None
    ) -> None:
        del name, seconds
        self._failed = None
        settings = {
            **client._PRODUCER,
            **({"message.max.bytes": max_bytes} if max_bytes else {}),
            **cluster.build_settings(),
        }
        self._producer = Producer({**settings, "on_delivery": self._record_failure}, logger=client.get_silent_logger())

    def init(self) -> None:
        pass

    def begin(self) -> None:
        self._failed = None

    def commit(self) -> None:
        if self.flush() or self._failed is not None:
            raise self._failed or KafkaFault("_TIMED_OUT")

    def abort(self) -> None:
        pass


@contextmanager
def without_transactions() -> Iterator[None]:
    with ExitStack() as patched:
        for module in (lanes, lease):
            patched.enter_context(patch.object(module, "TransactionalProducer", Plain))
        # The tasks import the sink anew: they are sent a function of this module
        patched.enter_context(patch.object(strategies, "write_lane", _write_lane))
        yield


def _write_lane(*arguments: Any, **named: Any) -> LaneProgress:
    with patch.object(lanes, "TransactionalProducer", Plain):  # the worker goes on to serve others
        return lanes.write_lane(*arguments, **named)


def measure(lab: Lab) -> Iterator[Answer]:
    events = window(lab)
    found: dict[str, list[float]] = {"exactly once": [], "plain": []}
    for counts in lab.rounds(warm_up=1, timed=5):
        for variant in lab.shuffled(tuple(found)):
            with fresh(lab) as topic, ExitStack() as changed:
                if variant == "plain":
                    changed.enter_context(without_transactions())
                seconds, _ = timed(events.pipeline(topic))
                events.check(topic)
            if counts:
                found[variant].append(seconds)
    ours, plain = median(found["exactly once"]), median(found["plain"])
    yield Answer(
        question="kafka_guarantee",
        ratio=plain / ours,
        aim=AIM,
        better="higher",
        words=f"{events.changes:,} events in {ours:.2f} s, without transactions {plain:.2f} s",
        detail={
            "events": events.changes,
            "seconds": round(ours, 4),
            "plain_seconds": round(plain, 4),
            "spread": {name: [round(min(times), 4), round(max(times), 4)] for name, times in found.items()},
            "repetitions": len(found["plain"]),
        },
    )

"""What users decided about the pipeline of a topic: the record ``<topic> controls`` in the position topic.

It is written under a transactional id of its own, so that no decision fences a runner. Of two commands at the same time the
second fences the first, which then decides again about what the second has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from cdf.sink import Controls
from connectors.kafka.client import Cluster, TransactionalProducer
from connectors.kafka.errors import KafkaFault, is_fenced
from connectors.kafka.state.position import read_state

__all__ = ["change_controls"]

TRIES = 5
SECONDS = 10.0
"""Time limit of the transaction."""


def change_controls(
    cluster: Cluster, position_topic: str, target: str, change: Callable[[Controls], Controls]
) -> Controls:
    """Replace the record. The position topic must exist. Raises KafkaFault."""
    for attempt in range(TRIES):
        producer = TransactionalProducer(cluster, f"deltarelay.{target}.controls", seconds=SECONDS)
        try:
            producer.init()
            controls = change(read_state(cluster, position_topic, target).controls)
            producer.begin()
            producer.produce(position_topic, f"{target} controls".encode(), json.dumps(controls.to_document()).encode())
            producer.commit()
            return controls
        except KafkaFault as fault:
            if not is_fenced(fault) or attempt == TRIES - 1:
                raise
        finally:
            producer.close()
    raise AssertionError("unreachable")

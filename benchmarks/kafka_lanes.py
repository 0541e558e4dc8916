"""What do more lanes bring?

The window of ``kafka_events`` with 1, 2 and 4 lanes, on two cores, in an order left to chance. The ratio is that of events
per second, against one lane. More than two lanes cannot be at work at once here; the aim is that no number of them is
dearer than one.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.answer import Answer
from benchmarks.kafka_state import fresh, timed, window
from benchmarks.lab import Lab, median

__all__ = ["measure"]

AIM = 1.0
LANES = (1, 2, 4)


def measure(lab: Lab) -> Iterator[Answer]:
    events = window(lab)
    found: dict[int, list[float]] = {lanes: [] for lanes in LANES}
    for counts in lab.rounds(warm_up=1, timed=3):
        for lanes in lab.shuffled(LANES):
            with fresh(lab) as topic:
                seconds, _ = timed(events.pipeline(topic, lanes=lanes))
                events.check(topic)
            if counts:
                found[lanes].append(seconds)
    one = median(found[1])
    for lanes in LANES[1:]:
        several = median(found[lanes])
        yield Answer(
            question=f"kafka_lanes, {lanes} lanes",
            ratio=one / several,
            aim=AIM,
            better="higher",
            words=f"{events.changes:,} events in {several:.2f} s ({events.changes / several:,.0f}/s), one lane {one:.2f} s",
            detail={
                "events": events.changes,
                "lanes": lanes,
                "seconds": round(several, 4),
                "one_lane_seconds": round(one, 4),
                "repetitions": len(found[lanes]),
            },
        )

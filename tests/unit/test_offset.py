"""What Delta's offsets say of the commits that were delivered (the table of cases is Delta 4.4's)."""

from __future__ import annotations

import json

import pytest

from cdf.errors import ConfigError
from cdf.pipeline.stream_offset import Offset
from cdf.pipeline.streaming_query import check_trigger


def offset(version: int, index: int, *, snapshot: bool = False) -> Offset:
    found = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": version, "index": index}
    return Offset.parse(json.dumps(found | {"isStartingVersion": snapshot}))


@pytest.mark.parametrize(
    ("found", "atomic", "touched", "complete"),
    [
        (offset(7, -1), False, 6, 6),
        (offset(7, -1), True, 6, 6),
        (offset(7, 0), True, 7, 7),  # parks behind the last file of a commit with change files
        (offset(7, 3), False, 7, 6),  # the rest of 7 is still to come
        (offset(7, -20), False, 6, 6),  # a schema change at 7
        (offset(7, -19), True, 6, 6),
        (offset(7, 4, snapshot=True), False, 7, None),
        (offset(7, -1, snapshot=True), False, 6, None),
    ],
)
def test_what_was_touched_and_what_was_delivered_whole(
    found: Offset, atomic: bool, touched: int, complete: int | None
) -> None:
    assert found.touched == touched
    assert found.complete(atomic=atomic) == complete
    assert found.table_id == "t"


def test_only_the_triggers_that_make_sense_are_taken() -> None:
    assert check_trigger({"availableNow": True}) == {"availableNow": True}
    assert check_trigger({"processingTime": "5 seconds"}) == {"processingTime": "5 seconds"}
    for wrong in ({}, {"once": True}, {"availableNow": False}, {"processingTime": 5}, {"continuous": "1 second"}):
        with pytest.raises(ConfigError, match="trigger"):
            check_trigger(wrong)

"""What Delta's offsets say of the commits that were delivered (the cases are Delta 4.4's); which triggers are taken."""

from __future__ import annotations

import json

import pytest

from cdf.errors import ConfigError
from cdf.pipeline.polling import check_trigger
from cdf.pipeline.stream_offset import Offset


def offset(version: int, index: int, *, snapshot: bool = False) -> Offset:
    found = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": version, "index": index}
    return Offset.parse(json.dumps(found | {"isStartingVersion": snapshot}))


@pytest.mark.parametrize(
    ("found", "touched"),
    [
        (offset(7, -1), 6),
        (offset(7, 0), 7),
        (offset(7, 3), 7),  # the rest of 7 is still to come
        (offset(7, -20), 6),  # a schema change at 7
        (offset(7, 4, snapshot=True), 7),
    ],
)
def test_what_was_touched(found: Offset, touched: int) -> None:
    assert found.touched == touched
    assert found.table_id == "t"


def test_only_the_triggers_that_make_sense_are_taken() -> None:
    assert check_trigger({"availableNow": True}) == {"availableNow": True}
    assert check_trigger({"processingTime": "5 seconds"}) == {"processingTime": "5 seconds"}
    for wrong in ({}, {"once": True}, {"availableNow": False}, {"processingTime": 5}, {"continuous": "1 second"}):
        with pytest.raises(ConfigError, match="trigger"):
            check_trigger(wrong)

"""Files are rewritten for a purge only where they may hold values that no row shows."""

from __future__ import annotations

import pytest

from audit.erasure.erase.purge import _may_hide_values
from cdf.changes.commits import Protocol


@pytest.mark.parametrize(
    ("protocol", "may"),
    [
        (Protocol(1, 2), False),
        (Protocol(1, 7, (), ("changeDataFeed", "appendOnly")), False),
        (Protocol(2, 5), True),  # column mapping, without its name
        (Protocol(3, 7, ("timestampNtz", "v2Checkpoint")), False),
        (Protocol(3, 7, ("deletionVectors",)), True),
        (Protocol(3, 7, ("timestampNtz", "columnMapping")), True),
    ],
)
def test_the_protocol_says_what_files_may_hide(protocol: Protocol, *, may: bool) -> None:
    assert _may_hide_values(protocol) is may

"""What can go wrong with a trail, besides what ``cdf.errors`` has words for.

CdfError
├── ForkedTrail         an anchor holds a checkpoint that this trail contradicts
└── AnchorUnavailable   an anchor cannot be reached now                                            (temporary)
"""

from __future__ import annotations

from cdf.errors import CdfError

__all__ = ["AnchorUnavailable", "ForkedTrail"]


class ForkedTrail(CdfError):
    code = "trail_forked"


class AnchorUnavailable(CdfError):
    code = "anchor_unavailable"
    transient = True

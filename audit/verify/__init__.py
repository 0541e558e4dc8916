"""Is a trail what it was?"""

from audit.verify.findings import (
    CHECKPOINTS,
    MOST_FINDINGS,
    NOT_COVERED,
    Finding,
    Seen,
    TrailVerification,
    Verified,
)
from audit.verify.verification import verify_trail

__all__ = [
    "CHECKPOINTS",
    "MOST_FINDINGS",
    "NOT_COVERED",
    "Finding",
    "Seen",
    "TrailVerification",
    "Verified",
    "verify_trail",
]

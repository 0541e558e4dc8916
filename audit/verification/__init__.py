"""Is a trail what it was?"""

from audit.verification.results import (
    CHECKPOINTS,
    MOST_FINDINGS,
    NOT_COVERED,
    Finding,
    Seen,
    TrailVerification,
    Verified,
)
from audit.verification.verify import verify_trail

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

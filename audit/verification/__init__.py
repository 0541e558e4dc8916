"""Is a trail what it was?"""

from audit.verification.results import (
    CHECKPOINTS,
    MOST_FINDINGS,
    NOT_COVERED,
    Finding,
    FoundCheckpoint,
    TrailVerification,
    VerifiedState,
)
from audit.verification.verify import verify_trail

__all__ = [
    "CHECKPOINTS",
    "MOST_FINDINGS",
    "NOT_COVERED",
    "Finding",
    "FoundCheckpoint",
    "TrailVerification",
    "VerifiedState",
    "verify_trail",
]

"""Verification of a trail: every hash is recomputed and compared."""

from audit.checkpoints.anchored import FoundCheckpoint
from audit.verification.results import (
    CHECKPOINTS,
    MOST_FINDINGS,
    NOT_COVERED,
    Finding,
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

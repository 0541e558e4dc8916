"""Errors of trails, besides those in ``cdf.errors``.

CdfError
├── ForkedTrail         the trail contradicts a checkpoint of an anchor
└── AnchorUnavailable   an anchor cannot be reached at the moment                                            (temporary)
"""

from __future__ import annotations

import re
from typing import NoReturn

from cdf.errors import CdfError, VerificationError, condition_of

__all__ = ["AnchorUnavailable", "ForkedTrail", "find_named_file", "raise_without_context", "unreadable_trail"]


_TOO_OLD = "audit.encryption.decrypt.KeysTooOld"


class ForkedTrail(CdfError):
    code = "trail_forked"


class AnchorUnavailable(CdfError):
    code = "anchor_unavailable"
    transient = True


_FILE = re.compile(r"/((?:events|payload|ledger)/[\w.=/-]+\.(?:parquet|json|bin|crc))")


def find_named_file(error: BaseException) -> str | None:
    """The file of a trail that an exception of Spark names, relative to the trail's folder. Such names contain no values."""
    found = _FILE.search(str(error))
    return found[1] if found else None


def unreadable_trail(path: str, error: Exception, step: str = "") -> VerificationError:
    """The error for a failed read of a trail's tables, which may have been altered; also for decryption keys that expired
    during the read. ``step``: what was being read."""
    if _TOO_OLD in str(error):
        return VerificationError(
            f"the encrypted values of the trail at {path} could not be read completely: keys are valid for five minutes",
            hint="read less at a time, such as one key or fewer versions, or read without --decrypt",
        )
    condition = condition_of(error)
    reason = condition or type(error).__name__
    if (file := find_named_file(error)) is not None:
        reason += f"; {file}"
    return VerificationError(
        f"the trail at {path} cannot be read ({f'{step}; {reason}' if step else reason})",
        hint="`deltarelay audit verify` reports what is altered or missing",
        condition=condition,
    )


def raise_without_context(failure: Exception) -> NoReturn:
    """Raise ``failure`` without the driver's exception as its context, which quotes addresses, users and accounts."""
    try:
        raise failure from None
    finally:
        failure.__context__ = None

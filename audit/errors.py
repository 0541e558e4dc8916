"""What can go wrong with a trail, besides what ``cdf.errors`` has words for.

CdfError
├── ForkedTrail         an anchor holds a checkpoint that this trail contradicts
└── AnchorUnavailable   an anchor cannot be reached now                                            (temporary)
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
    """The file of a trail that an exception of Spark's names, below the trail's folder: names of ours, without values."""
    found = _FILE.search(str(error))
    return found[1] if found else None


def unreadable_trail(path: str, error: Exception, what: str = "") -> VerificationError:
    """For what a trail's tables have answered that a trail does not: somebody may have altered them. Also where a reader's
    keys have grown too old meanwhile."""
    if _TOO_OLD in str(error):
        return VerificationError(
            f"what is sealed in the trail at {path} could not be read to the end: keys are handed out for five minutes",
            hint="ask for less at a time, such as one key or fewer versions, or ask without --decrypt",
        )
    condition = condition_of(error)
    why = condition or type(error).__name__
    if (file := find_named_file(error)) is not None:
        why += f"; {file}"
    return VerificationError(
        f"the trail at {path} cannot be read ({f'{what}; {why}' if what else why})",
        hint="`deltarelay audit verify` tells what is altered or gone",
        condition=condition,
    )


def raise_without_context(failure: Exception) -> NoReturn:
    """Without the driver's exception in the chain, which quotes addresses, users and accounts."""
    try:
        raise failure from None
    finally:
        failure.__context__ = None

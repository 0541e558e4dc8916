"""Who is at work, as far as this machine knows."""

from __future__ import annotations

import os
import pwd

__all__ = ["os_user"]


def os_user() -> str:
    """The user of this process, by the number that the kernel has: LOGNAME is whatever the user sets it to."""
    uid = os.getuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:  # a container's user need not have a name
        return f"uid {uid}"

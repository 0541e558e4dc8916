"""The name of the operating-system user, for records."""

from __future__ import annotations

import os
import pwd

__all__ = ["os_user"]


def os_user() -> str:
    """The user of this process, by its numeric id: the user can set LOGNAME to anything."""
    uid = os.getuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:  # a user in a container may have no name
        return f"uid {uid}"

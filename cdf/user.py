"""Who is at work, as far as this machine knows."""

from __future__ import annotations

import getpass
import os

__all__ = ["os_user"]


def os_user() -> str:
    """The name of the machine's user, or their number where they have no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return f"uid {os.getuid()}"

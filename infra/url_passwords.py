"""Passwords in URLs. ``scheme://user:password@host`` has one, ``abfss://container@account`` has none."""

from __future__ import annotations

import re

__all__ = ["contains_password", "mask_passwords"]

# A password may contain an unescaped @, or an unescaped slash. Only addresses on HDFS (hdfs, webhdfs) have no password and
# may have a port: everywhere else, digits and a slash after the colon may begin a password
_PASSWORD = re.compile(r"(?:(?<!hdfs)://[^@\s/]*:|(?<=hdfs)://[^@\s/]*:(?!\d{1,5}/))(?:[^\s/]*|[^@\s]*)@")


def contains_password(url: str) -> bool:
    return _PASSWORD.search(url) is not None


def mask_passwords(text: str) -> str:
    """The text with user and password of every URL in it as ``***``."""
    return _PASSWORD.sub("://***@", text)

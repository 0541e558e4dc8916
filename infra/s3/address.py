"""Addresses on S3. One spelling for one table: ``s3://`` beside ``s3a://`` makes two locks, which exclude nobody."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["S3Address", "is_s3", "normalised"]

_S3 = re.compile(r"(?i)s3[an]?://")
SCHEME = "s3a"
"""Hadoop's name for S3. delta-rs and the lock table take it as well, so it is the one that is used everywhere."""


def is_s3(address: str) -> bool:
    return _S3.match(address) is not None


def normalised(address: str) -> str:
    """``s3://`` and ``s3n://`` as ``s3a://``, no slash at the end nor twice; any other address as it is.

    Raises ValueError where no bucket is named.
    """
    found = _S3.match(address)
    if found is None:
        return address
    bucket, _, key = address[found.end() :].partition("/")
    if not bucket:
        raise ValueError("names no bucket; write it as s3a://BUCKET/PATH")
    if "@" in bucket or ":" in bucket:  # not repeated: it may be a key
        raise ValueError("holds credentials; storage.s3.credentials says where they come from")
    path = "/".join(part for part in key.split("/") if part)
    return f"{SCHEME}://{bucket}/{path}" if path else f"{SCHEME}://{bucket}"


@dataclass(frozen=True, slots=True)
class S3Address:
    bucket: str
    key: str
    """Without a slash at either end; empty for the bucket itself."""

    @classmethod
    def parse(cls, address: str) -> S3Address:
        if not is_s3(address):
            raise ValueError("is not on S3; write it as s3a://BUCKET/PATH")
        bucket, _, key = normalised(address).removeprefix(f"{SCHEME}://").partition("/")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.key}".rstrip("/")

"""Addresses on S3 in one spelling: ``s3://`` beside ``s3a://`` would be two locks for one table, which exclude nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["S3Address", "is_s3", "normalize_address"]

_S3 = re.compile(r"(?i)s3[an]?://")
SCHEME = "s3a"
"""Hadoop's scheme for S3. delta-rs and the lock table accept it as well, so it is used everywhere."""


def is_s3(address: str) -> bool:
    return _S3.match(address) is not None


def normalize_address(address: str) -> str:
    """``s3://`` and ``s3n://`` as ``s3a://``, without doubled or trailing slashes; any other address unchanged.

    Raises ValueError where the bucket is missing.
    """
    match = _S3.match(address)
    if match is None:
        return address
    bucket, _, key = address[match.end() :].partition("/")
    if not bucket:
        raise ValueError("has no bucket; write it as s3a://BUCKET/PATH")
    if "@" in bucket or ":" in bucket:  # not repeated: it may be a key
        raise ValueError("contains credentials; set storage.s3.credentials to their source instead")
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
        bucket, _, key = normalize_address(address).removeprefix(f"{SCHEME}://").partition("/")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.key}".rstrip("/")

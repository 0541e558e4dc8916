"""Recognises files by their first bytes: Parquet under other names, and compressed files, which are decompressed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import IO, BinaryIO, cast

__all__ = ["BROKEN", "PARQUET", "begins_with", "not_decoded", "unpacked"]

PARQUET = b"PAR1"
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of decompressing a truncated or damaged file."""

_UNPACKED: dict[bytes, Callable[[BinaryIO], object]] = {
    b"\x1f\x8b\x08": lambda file: gzip.GzipFile(fileobj=cast("IO[bytes]", file)),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_NOT_DECODED = {
    b"PARE": "Parquet whose footer is encrypted",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "LZ4",
    b"LZ4Block": "LZ4",
    b"\xff\x06\0\0sNaPpY": "Snappy",
}


def begins_with(file: BinaryIO) -> bytes:
    start = file.read(16)
    file.seek(0)
    return start


def unpacked(file: BinaryIO, start: bytes) -> BinaryIO:
    """Return the file, or its decompressed content."""
    for magic, opened in _UNPACKED.items():
        if start.startswith(magic):
            return cast("BinaryIO", opened(file))
    return file


def not_decoded(start: bytes) -> str | None:
    return next((what for magic, what in _NOT_DECODED.items() if start.startswith(magic)), None)

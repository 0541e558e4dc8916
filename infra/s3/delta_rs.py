"""Prepares access to a table with delta-rs."""

from __future__ import annotations

from infra.s3.address import is_s3, normalize_address
from infra.s3.model import Storage
from infra.s3.probe import probe_buckets
from infra.s3.settings import delta_rs_options

__all__ = ["prepare_delta_rs"]


def prepare_delta_rs(address: str, storage: Storage | None) -> tuple[str, dict[str, str] | None]:
    """Address and options for delta-rs. A bucket on S3 is probed first: delta-rs itself would retry for minutes."""
    if not is_s3(address):
        return address, None
    storage, address = storage or Storage(), normalize_address(address)
    probe_buckets(storage, [address])
    return address, delta_rs_options(storage, address)

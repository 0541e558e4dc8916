"""Tables and targets as lineage tools identify them: https://openlineage.io/docs/spec/naming. Imports no driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TargetDataset", "split_address"]

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>[^?]*)")


@dataclass(frozen=True, slots=True)
class TargetDataset:
    """A target as lineage tools identify it: https://openlineage.io/docs/spec/naming"""

    namespace: str
    name: str
    include: tuple[str, ...] = ()
    """The columns of the source that are replicated; empty: all except ``exclude``."""
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    """Names in the target of columns of the source, where they differ."""

    def rename_column(self, column: str) -> str | None:
        """The name in the target of a column of the source; None: it is not replicated."""
        if column in self.exclude or (self.include and column not in self.include):
            return None
        return self.rename.get(column, column)


def split_address(address: str) -> tuple[str, str]:
    """Namespace and name of a Delta table by its address: a path, or a URL, whose user name and password are left out.

    Example: ``s3a://lake/sales/orders`` → ``s3://lake``, ``sales/orders``.
    """
    url = _URL.fullmatch(address)
    if url is None:
        return "file", address
    scheme = url["scheme"].lower()
    if scheme == "file":
        return "file", url["path"]
    if scheme in ("s3", "s3a", "s3n"):
        return f"s3://{url['authority']}", url["path"].strip("/")
    # abfss://container@account has no password; user:password@host has one
    user, _, host = url["authority"].rpartition("@")
    authority = host if ":" in user else url["authority"]
    return f"{scheme}://{authority}", url["path"] if scheme == "hdfs" else url["path"].strip("/")

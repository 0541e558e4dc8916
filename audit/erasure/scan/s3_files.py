"""Files of a table in a bucket: its objects, their former versions that the bucket retains, and unfinished uploads."""

from __future__ import annotations

import datetime as dt
import errno
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, BinaryIO

from audit.aws_errors import classify, error_code, replace_aws_errors
from audit.erasure.scan.files import File, Files, LocalFiles
from audit.erasure.scan.results import Unseen

__all__ = ["S3Files", "files_at"]

_IN_MEMORY = 64 * 1024 * 1024
"""A larger object is stored in a temporary file without a name, which ends with this process."""


def files_at(address: str, client: Callable[[str], Any], options: Callable[[str], Mapping[str, str] | None]) -> Files:
    """``client`` returns a boto3 client for a bucket, ``options`` the options of delta-rs. Raises FileNotFoundError where
    there is no folder, OSError for a store that is not supported."""
    scheme, there, rest = address.partition("://")
    if not there or scheme == "file":
        return LocalFiles(address)
    if scheme.lower() not in ("s3", "s3a", "s3n"):
        raise OSError(f"this release cannot scan objects of {scheme}")
    bucket, _, prefix = rest.partition("/")
    return S3Files(bucket, prefix.strip("/"), client(bucket), options(address))


class S3Files:
    def __init__(self, bucket: str, prefix: str, client: Any, options: Mapping[str, str] | None = None) -> None:
        self._bucket, self._prefix, self._client, self._options = bucket, prefix, client, options
        self._unseen: list[Unseen] = []
        self._rules: list[dict[str, Any]] | None = None

    @property
    def address(self) -> str:
        return f"s3a://{self._bucket}/{self._prefix}"

    def folders(self) -> Iterator[str]:
        """A bucket has none: the names of its objects contain the folders."""
        return iter(())

    def list_files(self) -> Iterator[File]:
        try:
            yield from self._versions()
        except PermissionError:
            self._unseen.append(
                Unseen("", "former versions of its objects may not be listed: grant s3:ListBucketVersions")
            )
            yield from self._objects()
        self._find_uploads()

    def _versions(self) -> Iterator[File]:
        with replace_aws_errors(_to_file_error):
            pages = self._client.get_paginator("list_object_versions").paginate(
                Bucket=self._bucket, Prefix=self._prefix + "/"
            )
            found: dict[str, list[dict[str, Any]]] = {}
            for page in pages:
                for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                    found.setdefault(one["Key"], []).append(one)
        for key, versions in sorted(found.items()):
            # Newest first; `IsLatest` decides between two in one second
            versions.sort(key=lambda one: (one["IsLatest"], one["LastModified"]), reverse=True)
            after: dt.datetime | None = None
            for one in versions:
                if "Size" in one:  # a delete marker has none
                    latest = bool(one["IsLatest"])
                    yield File(
                        key[len(self._prefix) + 1 :],
                        int(one["Size"]),
                        one["LastModified"],
                        None if latest else one["VersionId"],
                        None if latest or after is None else self._dropped_on(key, after),
                    )
                after = one["LastModified"]

    def _objects(self) -> Iterator[File]:
        with replace_aws_errors(_to_file_error):
            pages = list(
                self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix + "/")
            )
        for page in pages:
            for one in page.get("Contents", ()):
                yield File(one["Key"][len(self._prefix) + 1 :], int(one["Size"]), one["LastModified"])

    def open(self, file: File) -> BinaryIO:
        version = {} if file.version is None else {"VersionId": file.version}
        with ExitStack() as on_error, replace_aws_errors(_to_file_error):
            content: Any = on_error.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))
            response = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{file.name}", **version)
            for chunk in response["Body"].iter_chunks(1024 * 1024):
                content.write(chunk)
            content.seek(0)
            on_error.pop_all()  # the caller closes it
        found: BinaryIO = content
        return found

    def unseen(self) -> tuple[Unseen, ...]:
        return tuple(self._unseen)

    def delta_rs_options(self) -> Mapping[str, str] | None:
        return self._options

    # ── uploads and lifecycle rules ───────────────────────────────────────────────────────────────────────────

    def _find_uploads(self) -> None:
        """Record unfinished uploads: the bucket retains their parts, and no one can read them."""
        try:
            with replace_aws_errors(_to_file_error):
                pages = list(
                    self._client.get_paginator("list_multipart_uploads").paginate(
                        Bucket=self._bucket, Prefix=self._prefix + "/"
                    )
                )
        except PermissionError:
            self._unseen.append(Unseen("", "unfinished uploads may not be listed"))
            return
        for page in pages:
            for one in page.get("Uploads", ()):
                days = self._days("AbortIncompleteMultipartUpload", "DaysAfterInitiation", one["Key"])
                end = "no lifecycle rule removes it" if days is None else f"removed by {_day(one['Initiated'], days)}"
                name = one["Key"][len(self._prefix) + 1 :]
                self._unseen.append(Unseen(name, f"an unfinished upload, which cannot be read; {end}"))

    def _dropped_on(self, key: str, after: dt.datetime) -> dt.date | None:
        days = self._days("NoncurrentVersionExpiration", "NoncurrentDays", key)
        return None if days is None else _day(after, days)

    def _days(self, action: str, name: str, key: str) -> int | None:
        """Return the shortest period of the bucket's rules about that key."""
        if self._rules is None:
            try:
                with replace_aws_errors(_to_file_error):
                    response = self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket)
                self._rules = [rule for rule in response.get("Rules", ()) if rule.get("Status") == "Enabled"]
            except OSError:  # there are none, or they may not be read: no date is known then
                self._rules = []
        days = [
            int(rule[action][name])
            for rule in self._rules
            if name in rule.get(action, {}) and (prefix := _prefix_of(rule)) is not None and key.startswith(prefix)
        ]
        return min(days, default=None)


def _prefix_of(rule: Mapping[str, Any]) -> str | None:
    """Return the rule's prefix; None for a rule by tags or sizes, because those of an object are unknown here."""
    if "Prefix" in rule:
        return str(rule["Prefix"])
    filters = rule.get("Filter") or {}
    return str(filters.get("Prefix", "")) if set(filters) <= {"Prefix"} else None


def _day(since: dt.datetime, days: int) -> dt.date:
    """Add a day, because buckets count from the next midnight."""
    return (since + dt.timedelta(days=days + 1)).date() + dt.timedelta(days=1)


def _to_file_error(error: Exception) -> OSError:
    code = error_code(error)
    match classify(error):
        case "missing":
            return FileNotFoundError(errno.ENOENT, "is gone")
        case "no_bucket":
            return OSError(errno.ENODEV, "there is no such bucket")
        case "forbidden" | "unsupported":
            return PermissionError(errno.EACCES, f"the bucket refuses it ({code})")
    why = f"the bucket answers {code}" if code else f"the bucket cannot be queried ({type(error).__name__})"
    return OSError(errno.EIO, why)

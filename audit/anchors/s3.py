"""An anchor in an S3 bucket, ideally with Object Lock and under another account."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from audit.anchors.base import (
    LARGEST_NOTE,
    call_with_timeout,
    check_stored,
    file_name,
    folder_name,
    larger_checkpoint_exists,
    parse_note,
)
from audit.aws_errors import classify, error_code, replace_aws_errors
from audit.errors import AnchorUnavailable, raise_without_context
from cdf.errors import CdfError, ConfigError

__all__ = ["S3Anchor"]


class S3Anchor:
    """An object per checkpoint, ``<prefix>/<hash of origin>/<size>.txt``; of several versions of an object the oldest
    counts.

    An object that was overwritten, or hidden by a delete marker, is therefore still found, if the bucket keeps versions and
    they may be listed. Objects are put with ``If-None-Match: *``. If a server ignores that header, the object read back
    reveals it in a bucket with versions. In a bucket without versions, one of two concurrent publishers then overwrites the
    other unnoticed.
    """

    def __init__(self, url: str, client: Callable[[], Any], *, object_lock_days: int | None = None) -> None:
        """``client``: creates a boto3 client for S3, with its timeouts. ``object_lock_days``: how long no one can remove a
        checkpoint (compliance mode); None: the bucket's default applies."""
        found = re.fullmatch(r"s3a?://([^/]+)((?:/[^/]+)*)/*", url)
        if found is None:
            raise ConfigError("the url of an anchor on S3 must be s3://BUCKET/PREFIX")
        self._bucket, self._prefix = found[1], found[2].lstrip("/")
        self._name = f"s3://{self._bucket}/{self._prefix}"
        self._make_client, self._client_made = client, None
        self._days = object_lock_days

    def publish(self, origin: str, note: str) -> None:
        checkpoint = parse_note(origin, note)
        folder, name = self._folder(origin), file_name(checkpoint.size)
        with replace_aws_errors(self._describe):
            if (found := self._oldest_of(folder, name)) is None:
                if self._exists_beyond(folder, name):
                    raise larger_checkpoint_exists(self._name, checkpoint)
                self._put(folder + name, note)
                found = self._oldest_of(folder, name)
        if found is None:
            raise AnchorUnavailable(
                f"the anchor {self._name} does not list the checkpoint that was stored there",
                hint="publish it again",
                anchor=self._name,
            )
        stored, lock = found
        check_stored(self._name, checkpoint, stored)
        if self._days is not None and lock != "COMPLIANCE":
            raise ConfigError(
                f"the anchor {self._name} has the checkpoint, but does not show that it is locked in compliance mode",
                hint="grant s3:GetObjectRetention to the publishing role; if it has that right, the server does not lock "
                "objects",
                anchor=self._name,
            )

    def latest(self, origin: str) -> str | None:
        folder = self._folder(origin)
        with replace_aws_errors(self._describe):
            last = deque(self._oldest(folder), maxlen=1)  # S3 lists in ascending order only
            return self._read(folder, *last[0])[0] if last else None

    def notes(self, origin: str, *, least: int = 0) -> Iterator[str]:
        folder = self._folder(origin)
        with replace_aws_errors(self._describe):
            for name, version in self._oldest(folder):  # listing a thousand names costs as much as reading one note
                if name >= file_name(least):
                    yield self._read(folder, name, version)[0]

    # ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _client(self) -> Any:
        if self._client_made is None:
            self._client_made = self._make_client()
        return self._client_made

    def _folder(self, origin: str) -> str:
        return f"{self._prefix}/{folder_name(origin)}/".lstrip("/")

    def _put(self, key: str, note: str) -> None:
        from botocore.exceptions import ClientError

        lock: dict[str, Any] = {}
        if self._days is not None:
            until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=self._days)
            lock = {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": until}
        try:
            call_with_timeout(
                lambda: self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=note.encode(),
                    ContentType="text/plain; charset=utf-8",
                    IfNoneMatch="*",
                    ChecksumAlgorithm="SHA256",  # Object Lock requires a checksum
                    **lock,
                )
            )
        except ClientError as error:
            if lock and error_code(error) == "InvalidRequest":
                raise_without_context(
                    ConfigError(
                        f"the anchor {self._name} cannot lock objects: the bucket has no Object Lock",
                        hint="enable it for the bucket, or leave out object_lock_days: then checkpoints can be removed",
                        condition="InvalidRequest",
                        anchor=self._name,
                    )
                )
            # Where another process was faster, the stored object is compared afterwards
            if classify(error) != "precondition_failed":
                raise

    def _oldest_of(self, folder: str, name: str) -> tuple[str, str | None] | None:
        return next((self._read(folder, *found) for found in self._oldest(folder, name)), None)

    def _exists_beyond(self, folder: str, name: str) -> bool:
        """Lists in both ways, because not every server accepts a marker that is not an existing key."""
        return any(self._oldest(folder, beyond=name)) or any(self._list_current(folder, beyond=name))

    def _oldest(self, folder: str, name: str = "", *, beyond: str = "") -> Iterator[tuple[str, str | None]]:
        """Name and oldest version of each checkpoint, by size; the current objects if versions may not be listed."""
        from botocore.exceptions import ClientError

        start = {"KeyMarker": folder + beyond} if beyond else {}
        try:
            versions = self._list("list_object_versions", "Versions", folder, name, beyond, start)
            for object_name, group in groupby(versions, key=itemgetter(0)):
                *_, (_, oldest) = group  # the newest comes first
                yield object_name, oldest
        except ClientError as error:
            if classify(error) not in ("forbidden", "unsupported"):
                raise
            yield from self._list_current(folder, name, beyond=beyond)

    def _list_current(self, folder: str, name: str = "", *, beyond: str = "") -> Iterator[tuple[str, str | None]]:
        start = {"StartAfter": folder + beyond} if beyond else {}
        return self._list("list_objects_v2", "Contents", folder, name, beyond, start)

    def _list(
        self, call: str, field: str, folder: str, name: str, beyond: str, start: dict[str, str]
    ) -> Iterator[tuple[str, str | None]]:
        pages = iter(self._client.get_paginator(call).paginate(Bucket=self._bucket, Prefix=folder + name, **start))
        while (page := call_with_timeout(lambda: next(pages, None))) is not None:
            for entry in page.get(field, ()):
                object_name = entry["Key"].removeprefix(folder)
                if re.fullmatch(r"[0-9]{20}\.txt", object_name) and object_name > beyond:
                    yield object_name, entry.get("VersionId")

    def _read(self, folder: str, name: str, version: str | None) -> tuple[str, str | None]:
        """The note and the mode of its lock. A damaged note is returned as it is: no signature will match."""
        options = {} if version is None else {"VersionId": version}

        def read() -> tuple[str, str | None]:
            answer = self._client.get_object(Bucket=self._bucket, Key=folder + name, **options)
            with answer["Body"] as body:
                return body.read(LARGEST_NOTE).decode(errors="replace"), answer.get("ObjectLockMode")

        return call_with_timeout(read)

    # ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _describe(self, error: Exception) -> CdfError:
        anchor, code, name = f"the anchor {self._name}", error_code(error), type(error).__name__
        raised: type[CdfError] = ConfigError
        match classify(error):
            case "busy":
                raised, message, hint = AnchorUnavailable, f"{anchor} is busy ({code})", "publish again later"
            case "expired":
                self._client_made = None  # keys of an assumed role are valid for an hour: the next client gets new ones
                raised, message = AnchorUnavailable, f"{anchor}: the AWS credentials have expired"
                hint = "publish again; if that does not help, renew them"
            case "unreachable" | "no_answer":
                raised, message = AnchorUnavailable, f"{anchor} cannot be reached now ({name})"
                hint = "check endpoint and region, and publish again; checkpoints stored already do no harm"
            case "untrusted":
                message = f"{anchor}: the server's certificate is not trusted"
                hint = "check the endpoint; AWS_CA_BUNDLE names the file of trusted certificates"
            case "no_credentials" | "login_expired" | "client":
                message = f"{anchor}: the AWS client cannot be created ({name})"
                hint = "check the credentials and the region in storage.s3, and the files in ~/.aws"
            case kind:
                message = f"{anchor} refused the request ({code or 'no reason given'})"
                hint = "check the bucket, its region, and the credentials in storage.s3"
                if kind == "forbidden":
                    hint = "docs/how-to/anchor-checkpoints.md has the required access rights"
        return raised(message, hint=hint, condition=code or None, anchor=self._name)

"""An anchor that is a bucket, best one with Object Lock under another account."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from audit.errors import AnchorUnavailable, raise_without_context
from cdf.errors import CdfError, ConfigError

__all__ = ["S3Anchor"]

_TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_NOT_ALLOWED = {"AccessDenied", "403", "Forbidden"}
_NOT_KNOWN = {"NotImplemented", "MethodNotAllowed", "501"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_BUSY = {
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "OperationAborted",
    "500",
    "502",
    "503",
    "504",
}


class S3Anchor:
    """An object per checkpoint, ``<prefix>/<hash of origin>/<size>.txt``; of several versions of one the oldest counts.

    So what is overwritten, or hidden by a delete marker, is found all the same: where versions are kept and may be listed.
    Objects are put with ``If-None-Match: *``. A server that ignores it is found out by reading back where versions are
    kept. Where they are not, it lets one of two that publish in the same moment overwrite the other, unseen by the first.
    """

    def __init__(self, url: str, client: Callable[[], Any], *, object_lock_days: int | None = None) -> None:
        """``client`` makes a boto3 client for S3, with the timeouts that are to count. ``object_lock_days``: nobody can
        remove a checkpoint for so long (compliance mode); None leaves that to the bucket's own default."""
        found = re.fullmatch(r"s3a?://([^/]+)((?:/[^/]+)*)/*", url)
        if found is None:
            raise ConfigError("an anchor on S3 is named s3://BUCKET/PREFIX")
        self._bucket, self._prefix = found[1], found[2].lstrip("/")
        self._name = f"s3://{self._bucket}/{self._prefix}"
        self._make_client, self._client_made = client, None
        self._days = object_lock_days

    def publish(self, origin: str, note: str) -> None:
        checkpoint = parse_note(origin, note)
        folder, name = self._folder(origin), file_name(checkpoint.size)
        with self._in_words():
            if (found := self._oldest_of(folder, name)) is None:
                if self._any_beyond(folder, name):
                    raise larger_checkpoint_exists(self._name, checkpoint)
                self._put(folder + name, note)
                found = self._oldest_of(folder, name)
        if found is None:
            raise AnchorUnavailable(
                f"the anchor {self._name} does not show the checkpoint that was put there",
                hint="publish it again",
                anchor=self._name,
            )
        kept, lock = found
        check_stored(self._name, checkpoint, kept)
        if self._days is not None and lock != "COMPLIANCE":
            raise ConfigError(
                f"the anchor {self._name} has the checkpoint, but does not show it to be locked in compliance mode",
                hint="grant s3:GetObjectRetention to whoever publishes; if that is not it, the server locks nothing",
                anchor=self._name,
            )

    def latest(self, origin: str) -> str | None:
        folder = self._folder(origin)
        with self._in_words():
            last = deque(self._oldest(folder), maxlen=1)  # S3 lists in one direction only
            return self._read(folder, *last[0])[0] if last else None

    def notes(self, origin: str, *, least: int = 0) -> Iterator[str]:
        folder = self._folder(origin)
        with self._in_words():
            for name, version in self._oldest(folder):  # one list of a thousand costs what one note does
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
                    ChecksumAlgorithm="SHA256",  # Object Lock takes nothing without a checksum
                    **lock,
                )
            )
        except ClientError as error:
            if lock and _code(error) == "InvalidRequest":
                raise_without_context(
                    ConfigError(
                        f"the anchor {self._name} locks no objects: the bucket has no Object Lock",
                        hint="turn it on for the bucket, or leave out object_lock_days and know that objects can be removed",
                        condition="InvalidRequest",
                        anchor=self._name,
                    )
                )
            if _code(error) not in _TAKEN:  # somebody else was quicker; whether with the same is seen by reading
                raise

    def _oldest_of(self, folder: str, name: str) -> tuple[str, str | None] | None:
        return next((self._read(folder, *one) for one in self._oldest(folder, name)), None)

    def _any_beyond(self, folder: str, name: str) -> bool:
        """Asked for in both ways, for not every server takes a marker that is no key as the beginning of a list."""
        return any(self._oldest(folder, beyond=name)) or any(self._shown(folder, beyond=name))

    def _oldest(self, folder: str, name: str = "", *, beyond: str = "") -> Iterator[tuple[str, str | None]]:
        """Name and oldest version of each checkpoint, by size; what is shown where versions may not be listed."""
        from botocore.exceptions import ClientError

        start = {"KeyMarker": folder + beyond} if beyond else {}
        try:
            versions = self._listed("list_object_versions", "Versions", folder, name, beyond, start)
            for of_name, group in groupby(versions, key=itemgetter(0)):
                *_, (_, oldest) = group  # the newest comes first
                yield of_name, oldest
        except ClientError as error:
            if _code(error) not in _NOT_ALLOWED | _NOT_KNOWN:
                raise
            yield from self._shown(folder, name, beyond=beyond)

    def _shown(self, folder: str, name: str = "", *, beyond: str = "") -> Iterator[tuple[str, str | None]]:
        start = {"StartAfter": folder + beyond} if beyond else {}
        return self._listed("list_objects_v2", "Contents", folder, name, beyond, start)

    def _listed(
        self, call: str, field: str, folder: str, name: str, beyond: str, start: dict[str, str]
    ) -> Iterator[tuple[str, str | None]]:
        pages = iter(self._client.get_paginator(call).paginate(Bucket=self._bucket, Prefix=folder + name, **start))
        while (page := call_with_timeout(lambda: next(pages, None))) is not None:
            for one in page.get(field, ()):
                found = one["Key"].removeprefix(folder)
                if re.fullmatch(r"[0-9]{20}\.txt", found) and found > beyond:
                    yield found, one.get("VersionId")

    def _read(self, folder: str, name: str, version: str | None) -> tuple[str, str | None]:
        """The note and the mode of its lock. Something damaged is shown as it is: no signature will fit it."""
        which = {} if version is None else {"VersionId": version}

        def read() -> tuple[str, str | None]:
            answer = self._client.get_object(Bucket=self._bucket, Key=folder + name, **which)
            with answer["Body"] as body:
                return body.read(LARGEST_NOTE).decode(errors="replace"), answer.get("ObjectLockMode")

        return call_with_timeout(read)

    # ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """AWS' own text is left out: it names accounts, users and keys."""
        from botocore import exceptions as botocore

        passing = (
            botocore.ConnectionError,
            botocore.HTTPClientError,
            botocore.IncompleteReadError,
            botocore.FlexibleChecksumError,
            TimeoutError,
        )
        what = f"the anchor {self._name}"
        failure: CdfError
        try:
            yield
            return
        except botocore.ClientError as error:
            failure = self._refusal(_code(error))
        except botocore.SSLError:
            failure = ConfigError(
                f"{what}: the server's certificate is not accepted",
                hint="see whether the endpoint is the right one; AWS_CA_BUNDLE names the certificates to trust",
                anchor=self._name,
            )
        except passing as error:
            failure = AnchorUnavailable(
                f"{what} cannot be reached now ({type(error).__name__})",
                hint="see whether endpoint and region are right, and publish again: what is kept already does no harm",
                anchor=self._name,
            )
        except botocore.BotoCoreError as error:
            failure = ConfigError(
                f"{what}: the AWS client cannot be set up ({type(error).__name__})",
                hint="see the credentials and the region in storage.s3, and the files in ~/.aws",
                anchor=self._name,
            )
        raise_without_context(failure)

    def _refusal(self, code: str) -> CdfError:
        what = f"the anchor {self._name}"
        if code in _BUSY:
            return AnchorUnavailable(
                f"{what} is busy ({code})", hint="publish again later", condition=code, anchor=self._name
            )
        if code in _EXPIRED:
            self._client_made = None  # keys of an assumed role live for an hour: the next client has new ones
            return AnchorUnavailable(
                f"{what}: the AWS credentials have expired",
                hint="publish again; where that does not help, renew them",
                condition=code,
                anchor=self._name,
            )
        hint = "see the bucket, its region, and the credentials in storage.s3"
        if code in _NOT_ALLOWED:
            hint = "docs/how-to/anchor-checkpoints.md has the rights that are needed"
        return ConfigError(
            f"{what} refuses ({code or 'no reason given'})", hint=hint, condition=code or None, anchor=self._name
        )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))

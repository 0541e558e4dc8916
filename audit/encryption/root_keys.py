"""The key above all others: it opens the shard keys of a registry, and stands nowhere near it.

    FileRoot   32 bytes as text, from a file or a secret of the platform
    KmsRoot    a key of AWS KMS, which never leaves it

A registry's backup is worth nothing without the root key that it was made under. So a rotation goes to a **new** root key,
and the date on which the old one is destroyed is the date from which every older backup is unreadable.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from audit.encryption.aead import KEY_BYTES, NotOpened, Sealer, open_sealed
from audit.errors import raise_without_context
from audit.files import write_key
from cdf.errors import CdfError, ConfigError, SinkUnavailable

__all__ = ["KMS", "UNUSABLE", "FileRoot", "KmsRoot", "Root", "RootRefused", "check_root", "open_root"]

KMS = "aws_kms:"
"""What the name of a root key in AWS KMS begins with."""
_ARN = re.compile(r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):[0-9]{12}:(key|alias)/.+")
UNUSABLE = ("KMSInvalidStateException", "DisabledException", "NotFoundException")
"""The condition of the ConfigError for a key that is not there, disabled, or about to be deleted."""
# botocore's words for what passes
_PASSES = ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError")
_BUSY = ("ThrottlingException", "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException")


class RootRefused(ConfigError):
    """This root key does not open what another one has wrapped."""


class Root(Protocol):
    """Wraps the few keys right below it. A call may go over a network."""

    @property
    def name(self) -> str:
        """Which key it is, for messages and for the registry, which notes whose wraps it holds. Tells nothing of the key."""
        ...

    def wrap(self, key: bytes, *, about: str) -> bytes:
        """Encrypted, and bound to ``about``."""
        ...

    def unwrap(self, wrapped: bytes, *, about: str) -> bytes:
        """Raises RootRefused where another key has wrapped it, or it is altered or moved; SinkUnavailable where it cannot
        be asked for now."""
        ...

    def retire(self, days: int) -> dt.date | None:
        """Destroy it after so many days; → the day. None: somebody has to destroy it where it is kept."""
        ...


def open_root(text: str, client: Callable[[str], Any]) -> Root:
    """The root key that a text is or, with ``aws_kms:``, names. ``client`` makes a boto3 client for KMS in a region."""
    return KmsRoot(text, client) if text.startswith(KMS) else FileRoot.parse(text)


def check_root(text: str) -> None:
    """Raises ConfigError, which shows nothing of ``text``. Asks nobody."""
    open_root(text, lambda _: None)


# ── a file ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FileRoot:
    """As text ``ROOT+KEY+id+base64(key)``; the id guards against slips of the pen."""

    _key: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> FileRoot:
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> FileRoot:
        """Raises ConfigError, which shows nothing of ``text``."""
        found = re.fullmatch(r"ROOT\+KEY\+([0-9a-f]{8})\+([A-Za-z0-9+/]{43}=)", text.strip())
        try:
            root = cls(base64.b64decode(found[2], validate=True)) if found else None
        except binascii.Error:
            root = None
        if root is None or root.secret() != text.strip():
            raise ConfigError(
                "this is no root key, or one with a fault in it", hint="`deltarelay keys new-root FILE` makes one"
            )
        return root

    def write(self, path: Path) -> None:
        """Into a new file that only its owner can read. A key that is there is never overwritten."""
        write_key(path, self.secret(), what="root key")

    @property
    def name(self) -> str:
        return f"file:{hashlib.sha256(b'deltarelay root key id v1' + self._key).hexdigest()[:8]}"

    def secret(self) -> str:
        return f"ROOT+KEY+{self.name.removeprefix('file:')}+{base64.b64encode(self._key).decode()}"

    def wrap(self, key: bytes, *, about: str) -> bytes:
        return Sealer().seal(self._key, key, about=about.encode())

    def unwrap(self, wrapped: bytes, *, about: str) -> bytes:
        try:
            return open_sealed(self._key, wrapped, about=about.encode())
        except NotOpened:
            raise _refused(self.name) from None

    def retire(self, days: int) -> dt.date | None:  # noqa: ARG002
        return None


def _refused(name: str) -> RootRefused:
    return RootRefused(
        f"the root key {name} does not open the registry's keys: they were wrapped by another one, or were altered",
        hint="`deltarelay keys status` names the root key of each epoch",
    )


# ── AWS KMS ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class KmsRoot:
    """``aws_kms:`` and the ARN of a symmetric key, or of an alias of one. ``client`` makes a boto3 client for KMS in a
    region. What is wrapped is bound by KMS' encryption context, which AWS logs: it names shards, never a person."""

    def __init__(self, text: str, client: Callable[[str], Any]) -> None:
        found = _ARN.fullmatch(text.removeprefix(KMS))
        if not text.startswith(KMS) or found is None:
            raise ConfigError(
                "a root key in AWS KMS is named aws_kms:arn:aws:kms:REGION:ACCOUNT:key/ID, or by alias/NAME at its end"
            )
        self._arn, self._region = found[0], found["region"]
        self._make, self._made = client, None

    @property
    def name(self) -> str:
        return KMS + self._arn

    def wrap(self, key: bytes, *, about: str) -> bytes:
        with self._in_words():
            wrapped = self._client.encrypt(KeyId=self._arn, Plaintext=key, EncryptionContext={"deltarelay": about})
        return bytes(wrapped["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, *, about: str) -> bytes:
        # With the key named, KMS opens nothing that some other key of the account has wrapped
        with self._in_words():
            opened = self._client.decrypt(
                KeyId=self._arn, CiphertextBlob=wrapped, EncryptionContext={"deltarelay": about}
            )
        return bytes(opened["Plaintext"])

    def retire(self, days: int) -> dt.date | None:
        with self._in_words():
            # Of an alias: the key behind it, which is what is destroyed
            planned = self._client.describe_key(KeyId=self._arn)["KeyMetadata"]
            # Else by a try before this one; a key with replicas elsewhere waits for these, and has no date until then
            if "DeletionDate" not in planned and not planned["KeyState"].startswith("Pending"):
                planned = self._client.schedule_key_deletion(KeyId=planned["KeyId"], PendingWindowInDays=days)
        gone: dt.datetime | None = planned.get("DeletionDate")
        return None if gone is None else gone.astimezone(dt.UTC).date()

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = self._make(self._region)
        return self._made

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        failure: CdfError
        try:
            yield
            return
        except ClientError as error:
            failure = self._of(error.response)
        except BotoCoreError as error:
            kind = type(error).__name__
            failure = (
                SinkUnavailable(f"AWS KMS cannot be reached now ({kind})", hint="run again when it can", condition=kind)
                if kind in _PASSES
                else ConfigError(f"AWS KMS cannot be asked ({kind})", hint="check credentials and region")
            )
        raise_without_context(failure)

    def _of(self, response: Any) -> CdfError:
        code = str(response.get("Error", {}).get("Code", ""))
        if code in _BUSY or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
            return SinkUnavailable(f"AWS KMS is busy ({code})", hint="run again", condition=code)
        if code in ("InvalidCiphertextException", "IncorrectKeyException"):
            return _refused(self.name)
        if code in UNUSABLE:
            return ConfigError(
                f"the root key {self.name} cannot be used: it is not there, disabled, or about to be deleted ({code})",
                hint="`aws kms describe-key` shows its state; until its deletion date `cancel-key-deletion` saves it",
                condition=code,
            )
        return ConfigError(
            f"AWS KMS refuses to use {self.name} ({code})",
            hint="the role needs kms:Encrypt and kms:Decrypt on the key, and for `keys rotate` kms:ScheduleKeyDeletion",
            condition=code,
        )

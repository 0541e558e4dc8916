"""Root keys. A root key unwraps the epoch keys of a registry, and is stored apart from it.

    FileRoot   32 bytes as text, from a file or a secret of the platform
    KmsRoot    a key of AWS KMS, which never leaves KMS

A backup of the registry is useless without the root key that it was made under. Therefore a rotation changes to a **new**
root key, and every older backup is unreadable from the date on which the old one is destroyed.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from audit.aws_errors import classify, error_code, replace_aws_errors
from audit.encryption.aead import KEY_BYTES, DecryptionFailed, Encryptor, decrypt
from audit.files import write_key
from cdf.errors import CdfError, ConfigError, SinkUnavailable

__all__ = ["KMS", "UNUSABLE", "FileRoot", "KmsRoot", "Root", "RootRefused", "check_root", "open_root"]

KMS = "aws_kms:"
"""Prefix of the name of a root key in AWS KMS."""
_ARN = re.compile(r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):[0-9]{12}:(key|alias)/.+")
UNUSABLE = ("KMSInvalidStateException", "DisabledException", "NotFoundException")
"""Conditions of the ConfigError for a key that does not exist, is disabled, or is about to be deleted."""


class RootRefused(ConfigError):
    """The wrapped key was wrapped by another root key, or was altered."""


class Root(Protocol):
    """Wraps and unwraps the keys directly below it. A call may go over a network."""

    @property
    def name(self) -> str:
        """Name for messages, and for the registry, which records the root key of each epoch. Reveals nothing of the key."""
        ...

    def wrap(self, key: bytes, *, context: str) -> bytes:
        """Encrypt a key and bind it to ``context``."""
        ...

    def unwrap(self, wrapped: bytes, *, context: str) -> bytes:
        """Raises RootRefused where another key has wrapped it, or it was altered or moved; SinkUnavailable where the root
        key cannot be reached now."""
        ...

    def retire(self, days: int) -> dt.date | None:
        """Schedule the destruction of the root key after this number of days. Returns the day; None where the operator must
        destroy the key in its store."""
        ...


def open_root(text: str, client: Callable[[str], Any]) -> Root:
    """The root key that ``text`` contains or, with ``aws_kms:``, names. ``client`` creates a boto3 client for KMS."""
    return KmsRoot(text, client) if text.startswith(KMS) else FileRoot.parse(text)


def check_root(text: str) -> None:
    """Raises ConfigError, which shows nothing of ``text``. Does not contact KMS."""
    open_root(text, lambda _: None)


# ── a file ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FileRoot:
    """As text: ``ROOT+KEY+id+base64(key)``. The id detects typing errors."""

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
            raise ConfigError("this is not a valid root key", hint="`deltarelay keys new-root FILE` generates one")
        return root

    def write(self, path: Path) -> None:
        """Write to a new file that only its owner can read. An existing key is never overwritten."""
        write_key(path, self.secret(), what="root key")

    @property
    def name(self) -> str:
        return f"file:{hashlib.sha256(b'deltarelay root key id v1' + self._key).hexdigest()[:8]}"

    def secret(self) -> str:
        return f"ROOT+KEY+{self.name.removeprefix('file:')}+{base64.b64encode(self._key).decode()}"

    def wrap(self, key: bytes, *, context: str) -> bytes:
        return Encryptor().encrypt(self._key, key, associated_data=context.encode())

    def unwrap(self, wrapped: bytes, *, context: str) -> bytes:
        try:
            return decrypt(self._key, wrapped, associated_data=context.encode())
        except DecryptionFailed:
            raise _refused_error(self.name) from None

    def retire(self, days: int) -> dt.date | None:  # noqa: ARG002
        return None


def _refused_error(name: str) -> RootRefused:
    return RootRefused(
        f"the root key {name} cannot unwrap the keys of the registry: another root key wrapped them, or they were altered",
        hint="`deltarelay keys status` names the root key of each epoch",
    )


# ── AWS KMS ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class KmsRoot:
    """``text``: ``aws_kms:`` and the ARN of a symmetric key or of an alias. ``client`` creates a boto3 client for a region.
    The context is passed as KMS' encryption context, which AWS logs: it names epochs, never a person."""

    def __init__(self, text: str, client: Callable[[str], Any]) -> None:
        found = _ARN.fullmatch(text.removeprefix(KMS))
        if not text.startswith(KMS) or found is None:
            raise ConfigError(
                "a root key in AWS KMS is named aws_kms:arn:aws:kms:REGION:ACCOUNT:key/ID, or by alias/NAME at its end"
            )
        self._arn, self._region = found[0], found["region"]
        self._create_client, self._cached_client = client, None

    @property
    def name(self) -> str:
        return KMS + self._arn

    def wrap(self, key: bytes, *, context: str) -> bytes:
        with replace_aws_errors(self._describe):
            wrapped = self._client.encrypt(KeyId=self._arn, Plaintext=key, EncryptionContext={"deltarelay": context})
        return bytes(wrapped["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, *, context: str) -> bytes:
        # With the key named, KMS rejects ciphertexts of other keys of the account
        with replace_aws_errors(self._describe):
            response = self._client.decrypt(
                KeyId=self._arn, CiphertextBlob=wrapped, EncryptionContext={"deltarelay": context}
            )
        return bytes(response["Plaintext"])

    def retire(self, days: int) -> dt.date | None:
        with replace_aws_errors(self._describe):
            # For an alias: the key that it points to, which is destroyed
            planned = self._client.describe_key(KeyId=self._arn)["KeyMetadata"]
            # An earlier attempt may have scheduled it. A key with replicas has no date until the replicas are deleted
            if "DeletionDate" not in planned and not planned["KeyState"].startswith("Pending"):
                planned = self._client.schedule_key_deletion(KeyId=planned["KeyId"], PendingWindowInDays=days)
        gone: dt.datetime | None = planned.get("DeletionDate")
        return None if gone is None else gone.astimezone(dt.UTC).date()

    @property
    def _client(self) -> Any:
        if self._cached_client is None:
            self._cached_client = self._create_client(self._region)
        return self._cached_client

    def _describe(self, error: Exception) -> CdfError:
        code, name = error_code(error), type(error).__name__
        if code in ("InvalidCiphertextException", "IncorrectKeyException"):
            return _refused_error(self.name)
        if code in UNUSABLE:
            return ConfigError(
                f"the root key {self.name} cannot be used: it does not exist, is disabled or about to be deleted ({code})",
                hint="`aws kms describe-key` shows its state; before its deletion date `aws kms cancel-key-deletion` "
                "cancels the deletion",
                condition=code,
            )
        match classify(error):
            case "busy":
                return SinkUnavailable(f"AWS KMS is busy ({code})", hint="run again", condition=code)
            case "expired":
                self._cached_client = None  # keys of an assumed role expire: the next client gets new ones
                hint = "run again; if that does not help, renew them"
                return SinkUnavailable("AWS KMS: the AWS credentials have expired", hint=hint, condition=code)
            case "unreachable" | "no_answer":
                hint = "run again when AWS KMS can be reached"
                return SinkUnavailable(f"AWS KMS cannot be reached now ({name})", hint=hint, condition=name)
            case "no_credentials" | "login_expired" | "untrusted" | "client":
                return ConfigError(f"the request to AWS KMS failed ({name})", hint="check credentials and region")
        return ConfigError(
            f"AWS KMS refuses to use {self.name} ({code})",
            hint="the role needs kms:Encrypt and kms:Decrypt on the key, and for `keys rotate` kms:ScheduleKeyDeletion",
            condition=code,
        )

"""Signing checkpoints, and keeping them where whoever can write to the trail cannot: at anchors.

The formats are those of c2sp.org/signed-note and c2sp.org/tlog-checkpoint; ``audit.proof`` reads and verifies them.
"""

from __future__ import annotations

import base64
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.errors import AnchorUnavailable, ForkedTrail
from audit.proof import Checkpoint, ProofError, VerifierKey, base64_text, read_checkpoint, read_note
from cdf.errors import ConfigError

__all__ = ["Anchor", "FileAnchor", "Signer", "merged"]


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key, as text ``PRIVATE+KEY+name+hex(key id)+base64(01 || seed)``."""

    name: str
    _seed: bytes = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> Signer:
        """A new key. ``name`` tells people whose it is, best like an address: ``example.org/trail``."""
        if not re.fullmatch(r"[^\s+]+", name):
            raise ConfigError("the name of a key is not empty, and has neither spaces nor a plus sign")
        return cls(name, os.urandom(32))

    @classmethod
    def parse(cls, text: str) -> Signer:
        """Raises ConfigError, which shows nothing of ``text``."""
        found = re.fullmatch(r"PRIVATE\+KEY\+([^\s+]+)\+[0-9a-f]{8}\+([A-Za-z0-9+/]{44})", text.strip())
        signer = cls(found[1], base64.b64decode(found[2])[1:]) if found else None
        if signer is None or signer.secret() != text.strip():
            raise ConfigError(
                "this is no private key for Ed25519, or one with a fault in it",
                hint="`deltarelay audit keygen` makes one",
            )
        return signer

    @classmethod
    def read(cls, path: Path) -> Signer:
        """From a file that not everybody can read. The group may: a mounted secret belongs to the group that uses it."""
        try:
            with path.open() as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                    raise ConfigError(
                        f"everybody on this machine can use the signing key {path}",
                        hint=f"chmod 600 {path}",
                        path=str(path),
                    )
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the signing key {path} cannot be read: {_reason(error)}", path=str(path)) from error
        return cls.parse(text)

    def write(self, path: Path) -> None:
        """Into a new file that only its owner can read. A key that is there is never overwritten."""
        try:
            _write_new(path, self.secret() + "\n", mode=0o600)
        except FileExistsError as error:
            raise ConfigError(
                f"there is a file at {path} already", hint="choose another name: a lost key cannot be had back"
            ) from error
        except OSError as error:
            raise ConfigError(f"the signing key cannot be written to {path}: {_reason(error)}") from error

    @property
    def verifier(self) -> VerifierKey:
        return VerifierKey(self.name, self._key().public_key().public_bytes_raw())

    def secret(self) -> str:
        return "+".join(("PRIVATE+KEY", self.name, self.verifier.id.hex(), base64_text(b"\x01" + self._seed)))

    def sign(self, checkpoint: Checkpoint) -> str:
        """A signed note."""
        text = f"{checkpoint.origin}\n{checkpoint.size}\n{base64_text(checkpoint.root)}\n"
        if read_checkpoint(text) != checkpoint:
            raise ValueError(f"no checkpoint can have the origin {checkpoint.origin!r}")
        signature = self.verifier.id + self._key().sign(text.encode())
        return f"{text}\n\u2014 {self.name} {base64_text(signature)}\n"

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._seed)


def merged(note: str, other: str) -> str:
    """One note with the signatures of both, each once. ValueError where they sign different texts."""
    text, blank, signatures = note.rpartition("\n\n")
    if read_note(note)[0] != read_note(other)[0]:
        raise ValueError("two notes with different texts cannot become one")
    lines = signatures.splitlines() + other.rpartition("\n\n")[2].splitlines()
    return text + blank + "\n".join(dict.fromkeys(lines)) + "\n"


# ── anchors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Anchor(Protocol):
    """A place that keeps the checkpoints of trails, best under the rights of other people than the trail's.

    It keeps notes as they are and verifies no signature: whoever reads one believes it only with ``proof.verify_note``.
    Any method raises AnchorUnavailable where the place cannot be reached for now.
    """

    def publish(self, origin: str, note: str) -> None:
        """Keep ``note``, a signed checkpoint of ``origin``; once this returns it is durable.

        May be called again with the same note, and by several at the same time. What is there is never overwritten: a
        second note with the same text changes nothing, whoever signed it. Raises ForkedTrail where another root is there
        for this size, or a larger checkpoint while none for this size: trails never shrink.
        """

    def latest(self, origin: str) -> str | None:
        """The note of the largest size; None: there is none."""

    def notes(self, origin: str) -> Iterator[str]:
        """All notes, by size."""


class FileAnchor:
    """A directory, best on storage that keeps what was written: a file per checkpoint, ``<hash of origin>/<size>.txt``.

    The directory has to be there: one that is made where nothing is mounted would keep nothing. Checkpoints come to
    their place with a hard link, so a file is whole or not there, and never takes the place of another.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def publish(self, origin: str, note: str) -> None:
        text = read_note(note)[0]
        checkpoint = read_checkpoint(text)
        if checkpoint.origin != origin:
            raise ValueError("the checkpoint is of another origin")
        with self._reachable():
            if not self._directory.is_dir():
                raise FileNotFoundError(0, "no such directory")
            folder = self._folder(origin)
            folder.mkdir(exist_ok=True)
            _durable(self._directory)
            file, temporary = folder / f"{checkpoint.size:020}.txt", folder / f".{uuid.uuid4().hex}"
            if not file.exists():
                if (sizes := self._files(origin)) and sizes[-1].name > file.name:
                    raise self._forked(checkpoint, "holds a larger checkpoint already, and none of this size")
                try:
                    _write_new(temporary, note, mode=0o444)
                    with suppress(FileExistsError):  # somebody else was quicker; whether with the same is asked below
                        os.link(temporary, file)
                finally:
                    with suppress(OSError):  # storage that lets nothing be removed keeps it under its hidden name
                        temporary.unlink(missing_ok=True)
            # Also for one that was there: whoever wrote it may have died before it was durable
            _durable(folder)
            if _text(file) != text:
                raise self._forked(checkpoint, "holds another checkpoint of the same size")

    def latest(self, origin: str) -> str | None:
        with self._reachable():
            files = self._files(origin)
            return _read(files[-1]) if files else None

    def notes(self, origin: str) -> Iterator[str]:
        with self._reachable():
            yield from map(_read, self._files(origin))

    def _folder(self, origin: str) -> Path:
        return self._directory / sha256(origin.encode()).hexdigest()[:32]

    def _files(self, origin: str) -> list[Path]:
        if not self._directory.is_dir():
            raise FileNotFoundError(0, "no such directory")
        return sorted(self._folder(origin).glob("[0-9]*.txt"))

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise AnchorUnavailable(
                f"the anchor {self._directory} cannot be used: {_reason(error)}",
                hint="is it mounted, and may this user write to it?",
                anchor=str(self._directory),
            ) from error

    def _forked(self, checkpoint: Checkpoint, what: str) -> ForkedTrail:
        return ForkedTrail(
            f"the anchor {self._directory} {what}: the trail is not what it was when that was signed",
            hint="`deltarelay audit verify` tells where they part; change nothing until it is known why",
            anchor=str(self._directory),
            origin=checkpoint.origin,
            size=checkpoint.size,
        )


def _read(file: Path) -> str:
    """Something damaged is shown as it is: no signature will fit it."""
    return file.read_bytes().decode(errors="replace")


def _text(file: Path) -> str | None:
    try:
        return read_note(_read(file))[0]
    except ProofError:
        return None


def _write_new(path: Path, text: str, *, mode: int) -> None:
    """Durable, or FileExistsError."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", newline=""
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _durable(path.parent)


def _durable(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is no text"

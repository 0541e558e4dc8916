"""Signing keys (Ed25519), and the signed notes that they make.

The formats are those of c2sp.org/signed-note and c2sp.org/tlog-checkpoint; ``audit.proof`` reads and verifies them.
"""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.files import describe_failure, is_accessible_to_others, write_key
from audit.proof import Checkpoint, VerifierKey, base64_text, read_checkpoint
from cdf.errors import ConfigError

__all__ = ["Signer"]


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key, as text ``PRIVATE+KEY+name+hex(key id)+base64(01 || seed)``."""

    name: str
    _seed: bytes = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> Signer:
        """A new key. ``name`` says whose it is, preferably like an address: ``example.org/trail``."""
        if not re.fullmatch(r"[^\s+]+", name):
            raise ConfigError("the name of a key must not be empty or contain spaces or a plus sign")
        return cls(name, os.urandom(32))

    @classmethod
    def parse(cls, text: str) -> Signer:
        """Raises ConfigError, which does not quote ``text``."""
        found = re.fullmatch(r"PRIVATE\+KEY\+([^\s+]+)\+[0-9a-f]{8}\+([A-Za-z0-9+/]{44})", text.strip())
        signer = cls(found[1], base64.b64decode(found[2])[1:]) if found else None
        if signer is None or signer.secret() != text.strip():
            raise ConfigError(
                "not a private Ed25519 key, or a damaged one",
                hint="`deltarelay audit keygen` creates one",
            )
        return signer

    @classmethod
    def read(cls, path: Path) -> Signer:
        """Read a key from a file that no other user can access (``is_accessible_to_others``)."""
        try:
            with path.open() as file:
                if is_accessible_to_others(os.fstat(file.fileno())):
                    raise ConfigError(
                        f"users other than its owner can access the signing key {path}",
                        hint=f"chmod 600 {path}",
                        path=str(path),
                    )
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the signing key {path} cannot be read: {describe_failure(error)}", path=str(path)
            ) from error
        return cls.parse(text)

    def write(self, path: Path) -> None:
        """Write the key to a new file that only its owner can read. An existing file is never overwritten."""
        write_key(path, self.secret(), what="signing key")

    @property
    def verifier(self) -> VerifierKey:
        return VerifierKey(self.name, self._key().public_key().public_bytes_raw())

    def secret(self) -> str:
        return "+".join(("PRIVATE+KEY", self.name, self.verifier.id.hex(), base64_text(b"\x01" + self._seed)))

    def sign(self, checkpoint: Checkpoint) -> str:
        """Return a signed note."""
        text = f"{checkpoint.origin}\n{checkpoint.size}\n{base64_text(checkpoint.root)}\n"
        if read_checkpoint(text) != checkpoint:
            raise ValueError(f"a checkpoint cannot have the origin {checkpoint.origin!r}")
        signature = self.verifier.id + self.sign_bytes(text.encode())
        return f"{text}\n\u2014 {self.name} {base64_text(signature)}\n"

    def sign_bytes(self, data: bytes) -> bytes:
        """Return a bare signature. The data must begin with a label of its purpose, so that it cannot be mistaken for other
        data."""
        return self._key().sign(data)

    def derive(self, purpose: bytes) -> bytes:
        """Derive 32 bytes for another purpose than signing. They reveal nothing about the key or about each other."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(self._seed)

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._seed)

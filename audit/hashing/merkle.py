"""Merkle trees after RFC 9162 section 2.1: roots and inclusion proofs. ``audit.proof`` checks them.

All hashes have 32 bytes. If a list of leaves is cut into chunks of 2^k, of which only the last may be shorter, the roots of
the chunks can stand for the leaves: the root over them is the same, and the path of a leaf is its path in the chunk,
followed by the path of the chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from audit.proof import Proof, base64_text, node_hash

__all__ = [
    "EMPTY_ROOT",
    "CompactRange",
    "inclusion_path",
    "format_proof",
    "merkle_root",
    "merkle_root_of_chunks",
]

EMPTY_ROOT = sha256().digest()
"""The root of a tree without leaves."""


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    level = leaves
    while len(level) > 1:
        level = _level_above(level)
    return level[0] if level else EMPTY_ROOT


def merkle_root_of_chunks(roots: Sequence[bytes]) -> bytes:
    """The root over chunks of 2^k leaves each, of which only the last may be shorter, from the roots of the chunks."""
    return merkle_root(roots)


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The inclusion proof of the leaf at ``index``, for ``proof.root_from_path``."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"a tree of {len(leaves)} leaves has no index {index}")
    path, level = [], leaves
    while len(level) > 1:
        if (sibling := index ^ 1) < len(level):
            path.append(level[sibling])
        level, index = _level_above(level), index >> 1
    return path


def _level_above(level: Sequence[bytes]) -> list[bytes]:
    # ``node_hash``, without a call for each node
    above = [sha256(b"\x01" + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
    if len(level) & 1:
        above.append(level[-1])
    return above


class CompactRange:
    """An append-only tree that stores only the roots of its largest complete subtrees, one per bit set in ``size``.

    ``CompactRange(tree.size, tree.hashes)`` is a copy of ``tree``. An append computes one hash on average.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self.size = size
        self._hashes = list(hashes)
        if size < 0 or len(self._hashes) != size.bit_count() or any(len(hash) != 32 for hash in self._hashes):
            raise ValueError(f"not the hashes of a tree of {size} leaves")

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The roots of the subtrees, the largest first; at most 64."""
        return tuple(self._hashes)

    def append(self, leaf: bytes) -> None:
        self.append_chunk(leaf, 1)

    def append_chunk(self, root: bytes, size: int) -> None:
        """Append ``size`` leaves with this root. The tree's size must be a multiple of ``size``, a power of two."""
        if size < 1 or size & (size - 1) or self.size % size:
            raise ValueError(f"a chunk of {size} leaves cannot follow a tree of {self.size}")
        place = self.size // size
        while place & 1:
            root = node_hash(self._hashes.pop(), root)
            place >>= 1
        self._hashes.append(root)
        self.size += size

    def root(self) -> bytes:
        if not self._hashes:
            return EMPTY_ROOT
        root = self._hashes[-1]
        for left in reversed(self._hashes[:-1]):
            root = node_hash(left, root)
        return root


def format_proof(parts: Proof) -> str:
    """Format a proof file for ``proof.check``. Nothing is checked here."""
    lines = ["deltarelay-audit-proof v1", f"event {base64_text(parts.event)}"]
    if parts.salt is not None and parts.row is not None:
        lines += [f"salt {base64_text(parts.salt)}", f"row {base64_text(parts.row)}"]
    lines += [
        f"leaf {parts.index} of {parts.size}",
        *map(base64_text, parts.path),
        f"record {base64_text(parts.record)}",
        "",
    ]
    lines += ["c2sp.org/tlog-proof@v1", f"index {parts.sequence}", *map(base64_text, parts.ledger_path), ""]
    return "\n".join(lines) + "\n" + parts.note

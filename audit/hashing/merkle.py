"""Trees of hashes after RFC 9162 section 2.1: roots and paths out of leaves. ``audit.proof`` is what checks them.

Everything here takes hashes of 32 bytes and gives such. Where a list of leaves is cut into pieces of 2^k, the last one
perhaps shorter, the roots of the pieces can stand for the leaves: the root over them is the same, and the path of a leaf is
its path in the piece, followed by the path of the piece.
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
"""The root of no leaves."""


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    level = leaves
    while len(level) > 1:
        level = _level_above(level)
    return level[0] if level else EMPTY_ROOT


def merkle_root_of_chunks(roots: Sequence[bytes]) -> bytes:
    """From the roots of pieces of 2^k leaves each, of which only the last may be shorter."""
    return merkle_root(roots)


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """What ``proof.root_from_path`` needs to get from the leaf at ``index`` to the root."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"there is no place {index} in a tree of {len(leaves)}")
    path, level = [], leaves
    while len(level) > 1:
        if (sibling := index ^ 1) < len(level):
            path.append(level[sibling])
        level, index = _level_above(level), index >> 1
    return path


def _level_above(level: Sequence[bytes]) -> list[bytes]:
    above = [node_hash(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    if len(level) & 1:
        above.append(level[-1])
    return above


class CompactRange:
    """A tree that only grows: it remembers the roots of its largest complete subtrees, one per bit set in ``size``.

    ``CompactRange(tree.size, tree.hashes)`` goes on where another one stood. An append hashes once on average.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self.size = size
        self._hashes = list(hashes)
        if size < 0 or len(self._hashes) != size.bit_count() or any(len(one) != 32 for one in self._hashes):
            raise ValueError(f"these are not the hashes of a tree of {size}")

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """From the left, so from the largest subtree; at most 64 of them."""
        return tuple(self._hashes)

    def append(self, leaf: bytes) -> None:
        self.append_chunk(leaf, 1)

    def append_chunk(self, root: bytes, size: int) -> None:
        """``size`` leaves at once: a power of two of which the tree's size is a multiple."""
        if size < 1 or size & (size - 1) or self.size % size:
            raise ValueError(f"a piece of {size} has no place at the end of a tree of {self.size}")
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
    """The text of a proof file, which ``proof.check`` takes. Nothing is checked here."""
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

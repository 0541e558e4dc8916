"""Trees of hashes against their recursive definition (RFC 9162, 2.1), every path in small ones, and against answers and a
proof that others have published."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.hashing.merkle import CompactRange, inclusion_path, merkle_root, merkle_root_of_chunks
from audit.proof import leaf_hash, node_hash, root_from_path
from tests.fixtures.fix_seed import examples

LEAVES = [leaf_hash(str(number).encode()) for number in range(2100)]


def defined_root(leaves: list[bytes]) -> bytes:
    """As the RFC says it."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return node_hash(defined_root(leaves[:half]), defined_root(leaves[half:]))


ROOTS = [defined_root(LEAVES[:size]) for size in range(41)]


# ── roots ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_roots_of_certificate_transparency() -> None:
    """The eight inputs that implementations of RFC 6962 are tested with, and the roots over the first n of them."""
    inputs = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
    leaves = [leaf_hash(data) for data in [*inputs, bytes(range(0x60, 0x70))]]
    assert {size: merkle_root(leaves[:size]).hex() for size in (0, 1, 2, 3, 5, 8)} == {
        0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    }


def test_root_and_growing_tree_are_as_defined() -> None:
    tree = CompactRange()
    for size in range(301):
        expected = defined_root(LEAVES[:size])
        assert merkle_root(LEAVES[:size]) == tree.root() == expected
        assert tree.size == size
        tree.append(LEAVES[size])


@pytest.mark.parametrize("size", [1023, 1024, 1025, 2047, 2048, 2049, 2100])
def test_larger_trees(size: int) -> None:
    tree = CompactRange()
    for leaf in LEAVES[:size]:
        tree.append(leaf)
    assert merkle_root(LEAVES[:size]) == tree.root() == defined_root(LEAVES[:size])


@pytest.mark.parametrize("bits", [0, 1, 2, 5])
def test_roots_of_pieces_stand_for_their_leaves(bits: int) -> None:
    piece = 1 << bits
    for size in [*range(70), 127, 128, 129]:
        leaves = LEAVES[:size]
        pieces = [leaves[at : at + piece] for at in range(0, size, piece)]
        roots = [merkle_root(one) for one in pieces]
        assert merkle_root_of_chunks(roots) == merkle_root(leaves)
        if size:
            index = random.Random(size).randrange(size)
            in_piece = inclusion_path(pieces[index // piece], index % piece)
            assert in_piece + inclusion_path(roots, index // piece) == inclusion_path(leaves, index)


# ── the growing tree ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_goes_on_where_it_stood() -> None:
    for size in range(65):
        tree = CompactRange()
        for leaf in LEAVES[:size]:
            tree.append(leaf)
        again = CompactRange(tree.size, tree.hashes)
        assert len(tree.hashes) == size.bit_count()
        again.append(LEAVES[size])
        assert again.root() == merkle_root(LEAVES[: size + 1])
        assert tree.root() == merkle_root(LEAVES[:size]), "the first one stays what it was"


@given(st.lists(st.integers(0, 5), max_size=12))
@settings(max_examples=examples(200))
def test_pieces_are_taken_where_they_have_a_place(heights: list[int]) -> None:
    tree = CompactRange()
    for height in heights:
        size = 1 << height
        piece = merkle_root(LEAVES[tree.size : tree.size + size])
        if tree.size % size:
            before = tree.hashes
            with pytest.raises(ValueError, match="cannot follow"):
                tree.append_chunk(piece, size)
            assert tree.hashes == before
        else:
            tree.append_chunk(piece, size)
        assert tree.root() == merkle_root(LEAVES[: tree.size])


@pytest.mark.parametrize(
    ("size", "hashes"),
    [(1, []), (0, LEAVES[:1]), (3, LEAVES[:1]), (4, LEAVES[:2]), (-1, []), (1, [b"short"])],
)
def test_a_state_that_cannot_be(size: int, hashes: list[bytes]) -> None:
    with pytest.raises(ValueError, match="not the hashes of a tree"):
        CompactRange(size, hashes)


@pytest.mark.parametrize("size", [0, -1, 3])
def test_a_piece_has_a_power_of_two(size: int) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        CompactRange().append_chunk(LEAVES[0], size)


def test_an_append_hashes_once_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = 0

    def counted(left: bytes, right: bytes) -> bytes:
        nonlocal hashed
        hashed += 1
        return node_hash(left, right)

    monkeypatch.setattr("audit.hashing.merkle.node_hash", counted)
    tree = CompactRange()
    for leaf in LEAVES[:2048]:
        tree.append(leaf)
    assert hashed == 2047


# ── inclusion ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_place_in_every_small_tree() -> None:
    for size in range(1, 41):
        for index in range(size):
            path = inclusion_path(LEAVES[:size], index)
            assert root_from_path(LEAVES[index], index, size, path) == ROOTS[size]


def test_a_path_fits_one_place_and_one_leaf() -> None:
    for size in range(1, 25):
        for index in range(size):
            path = inclusion_path(LEAVES[:size], index)
            for other in range(size):
                if other != index:
                    assert not leads_to(ROOTS[size], LEAVES[index], other, size, path)
                    assert not leads_to(ROOTS[size], LEAVES[other], index, size, path)
            assert not leads_to(ROOTS[size], LEAVES[index], index, size, [*path, LEAVES[0]])
            for at in range(len(path)):
                assert not leads_to(ROOTS[size], LEAVES[index], index, size, path[:at] + path[at + 1 :])
                assert not leads_to(ROOTS[size], LEAVES[index], index, size, [*path[:at], LEAVES[99], *path[at + 1 :]])


def leads_to(root: bytes, leaf: bytes, index: int, size: int, path: list[bytes]) -> bool:
    try:
        return root_from_path(leaf, index, size, path) == root
    except ValueError:
        return False


@pytest.mark.parametrize("size", [100, 1000, 1024, 1025, 2100])
def test_places_in_larger_trees(size: int) -> None:
    root = defined_root(LEAVES[:size])
    for index in {0, size - 1, *random.Random(size).choices(range(size), k=20)}:
        assert root_from_path(LEAVES[index], index, size, inclusion_path(LEAVES[:size], index)) == root


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3)])
def test_a_place_that_there_is_not(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="has no index"):
        root_from_path(LEAVES[0], index, size, [])
    with pytest.raises(IndexError, match="has no index"):
        inclusion_path(LEAVES[:size], index)

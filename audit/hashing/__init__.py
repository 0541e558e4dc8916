"""Canonical bytes of rows, and the trees of hashes over them."""

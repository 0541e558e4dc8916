"""Compares a target with its source: counts, checksums per bucket of keys, differing rows."""

"""Trails checked against their own hashes and signatures, and against their sources."""

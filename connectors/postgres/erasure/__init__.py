"""Erasure of a person from the target, and the search for what is left of them."""

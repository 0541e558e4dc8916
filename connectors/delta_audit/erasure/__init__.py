"""Erasure of a person from a trail, and the search for what is left of them."""

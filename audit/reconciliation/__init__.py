"""Compares a trail with its source."""

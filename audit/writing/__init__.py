"""Writes the payload of a trail: rows of a window, recovery after a crash, removal of values."""

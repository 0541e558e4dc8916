"""Reads a Delta table: its log, its change feed as batch or stream, its rows at a version."""

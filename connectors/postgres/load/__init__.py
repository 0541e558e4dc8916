"""Whole-table loads: initial copy and reload."""

"""Rows on their way into staging tables."""

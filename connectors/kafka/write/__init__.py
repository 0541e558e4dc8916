"""Writes rows of the change feed as events into a topic."""

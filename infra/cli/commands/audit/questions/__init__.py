"""Queries on trails, and their answers as table, JSON, CSV or HTML."""

"""Copying rows into our own tables: their form, the COPY, and values that cannot be stored."""

"""Encrypts rows of a trail that were written before a class of columns was configured."""

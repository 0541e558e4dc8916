"""Requests of erasure, read from a file and checked."""

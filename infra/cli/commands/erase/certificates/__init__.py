"""Certificates of erasure."""

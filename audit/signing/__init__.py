"""Signing keys."""

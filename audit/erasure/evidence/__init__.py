"""Certificates: what was erased where, signed."""

"""Generates the reference pages that describe the code: errors, configuration, the public Python API."""

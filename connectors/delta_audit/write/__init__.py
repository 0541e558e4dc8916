"""Writes windows into the trail."""

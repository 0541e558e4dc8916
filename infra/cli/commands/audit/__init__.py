"""``deltarelay audit``."""

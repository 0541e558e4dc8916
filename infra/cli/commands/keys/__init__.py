"""``deltarelay keys``."""

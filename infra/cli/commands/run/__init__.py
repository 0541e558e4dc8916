"""``deltarelay run``."""

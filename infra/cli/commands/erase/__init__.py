"""``deltarelay erase``."""

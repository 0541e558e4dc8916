"""``deltarelay storage lock``."""

"""``deltarelay storage``."""

"""Questions to a trail."""

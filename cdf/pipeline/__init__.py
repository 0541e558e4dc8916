"""Data flow: choose a window, read the feed, have the sink apply it, go on from the sink's position."""

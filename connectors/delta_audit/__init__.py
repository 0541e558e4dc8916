"""The sink that keeps a trail."""

"""Real servers in a folder, for the demo, the tests and a laptop. Never for production."""

"""The outermost ring: command line, configuration, Spark session, demo."""

"""Checks that do not start Spark: source and target of a pipeline, and the machine."""

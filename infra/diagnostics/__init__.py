"""What is looked at without starting Spark: both ends of a pipeline, and the machine."""

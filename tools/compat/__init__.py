"""The tests on every pair of Spark and Delta, each in an environment of its own: ``make compat``."""

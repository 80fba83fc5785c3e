"""The Spark tests on every version of Spark: ``python -m tests.matrix``."""

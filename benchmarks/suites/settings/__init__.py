"""Benchmarks of Spark's settings."""

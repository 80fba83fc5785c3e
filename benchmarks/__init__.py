"""Benchmarks: seeded, each with its peer or its physical limit in the same run."""

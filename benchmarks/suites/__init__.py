"""Benchmarks by topic."""

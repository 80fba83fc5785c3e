"""Benchmarks of fence events."""

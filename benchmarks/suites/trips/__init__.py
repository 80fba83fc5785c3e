"""Benchmarks of moves and stays."""

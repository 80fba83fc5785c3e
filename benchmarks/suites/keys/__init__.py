"""Joins by keys and by ranges."""

"""Aggregates of windows over records that come out of order."""

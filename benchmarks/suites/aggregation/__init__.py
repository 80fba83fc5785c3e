"""Sliding windows in Spark."""

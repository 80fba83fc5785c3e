"""Skew: hotspot routing rules for table joins, salting of skewed cells for stream joins."""

"""Skew: hotspot routing rules for table joins, salting of crowded cells for stream joins."""

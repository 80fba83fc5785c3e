"""Hotspot routing of events that meet a table: load, samples of keys, ranges of even load."""

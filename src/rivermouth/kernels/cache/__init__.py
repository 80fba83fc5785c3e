"""The incremental cache: keys, eviction, and the rows behind the keys."""

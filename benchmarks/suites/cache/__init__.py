"""The incremental cache."""

"""Fences: what moving objects do with respect to a table's shapes."""

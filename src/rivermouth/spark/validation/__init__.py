"""Calls checked against the schemas of their inputs, before anything runs."""

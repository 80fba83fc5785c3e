"""Hotspot routing."""

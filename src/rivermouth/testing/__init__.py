"""Helpers for tests of code that uses rivermouth, public."""

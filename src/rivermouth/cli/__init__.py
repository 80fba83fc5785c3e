"""The command ``rivermouth``."""

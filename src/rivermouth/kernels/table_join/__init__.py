"""A batch of events against a table: check, match, assemble."""

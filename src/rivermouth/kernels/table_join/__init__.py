"""A batch of events against a table: match, assemble."""

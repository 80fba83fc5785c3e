"""Tables in SQLite files."""

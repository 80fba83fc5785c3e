"""What tables in PostgreSQL, MySQL and SQLite share."""

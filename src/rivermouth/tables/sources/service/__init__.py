"""A function of the user's that answers keys with rows, as a table."""

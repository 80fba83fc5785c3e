"""exact: early results, a backup of every record, and corrections until all are exact."""

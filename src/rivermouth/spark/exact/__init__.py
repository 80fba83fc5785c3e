"""exact: early answers, a backup of every record, and corrections until all is exact."""

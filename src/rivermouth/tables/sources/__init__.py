"""The sources of dimension rows: files, databases, DataFrames."""

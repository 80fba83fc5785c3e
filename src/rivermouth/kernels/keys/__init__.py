"""Key columns: normalised values, encodings, dictionaries and the index over a table's keys."""

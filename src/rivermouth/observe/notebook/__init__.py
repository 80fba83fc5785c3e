"""In notebooks: frames and running queries show themselves, as tables, numbers and maps."""

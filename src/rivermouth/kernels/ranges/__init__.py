"""Range keys, the bounds of a range, and the sorted index that answers them."""

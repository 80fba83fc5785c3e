"""Moves and stays of objects: segmentation of their positions, paths, and the state of a stream."""

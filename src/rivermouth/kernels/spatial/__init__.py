"""Geometry columns and the spatial indexes: cells, k-d tree, STRtree, distances."""

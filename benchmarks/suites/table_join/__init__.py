"""Joins with tables of shapes, and what watching them costs."""

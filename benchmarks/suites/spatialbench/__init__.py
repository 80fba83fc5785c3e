"""SpatialBench: its trips and buildings, its queries that join by place, and its answers."""

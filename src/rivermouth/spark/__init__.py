"""How Spark carries it: the only room that imports pyspark."""

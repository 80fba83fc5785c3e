"""How operators run on Spark: stateless, stateful, and compiled to Spark SQL."""

"""join_table's plan "native": the condition compiled to Spark SQL, no Python beside the events."""

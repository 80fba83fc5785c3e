"""Paper B as a system: Kafka, rm.exact, its store and PostgreSQL; and its scale-out on hosts."""

"""Tables in PostgreSQL, with PostGIS's geometries, read whole or asked to answer."""

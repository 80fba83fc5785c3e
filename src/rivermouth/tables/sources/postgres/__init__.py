"""Tables in PostgreSQL, with PostGIS's geometries."""

"""The process around the library: Java, the session, garbage collection, pickling."""

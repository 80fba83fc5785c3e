"""What a worker computes: arrays in, arrays out. No I/O, no clock, no Spark."""

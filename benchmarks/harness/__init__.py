"""What all benchmarks share: data, sessions, measurement, reports."""

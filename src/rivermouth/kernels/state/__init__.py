"""What every stateful operator shares: bucketing, watermarks, encodings."""

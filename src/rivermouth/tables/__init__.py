"""Where dimension rows come from, and how they are kept near the stream."""

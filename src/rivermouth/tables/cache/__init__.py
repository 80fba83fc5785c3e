"""Tables kept near the stream: snapshots, the incremental cache, retries."""

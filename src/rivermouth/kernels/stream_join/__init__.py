"""Two streams in space and time: where rows go, how they are kept, and which of them are joined."""

"""Two streams in space and time: where rows go, how they are held, and which of them meet."""

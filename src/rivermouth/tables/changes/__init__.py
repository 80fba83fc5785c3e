"""Tables that follow a feed of changes: the feeds, and the snapshot with what changed since."""

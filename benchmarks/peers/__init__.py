"""Other systems, each in an environment of its own, run as programs beside ours."""

"""What people look at: metrics, a progress line, plots."""

"""Process trees: a child process with all its descendants, started, measured and ended as one thing."""

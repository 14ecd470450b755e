"""The command engine: programs, each with all its descendants."""

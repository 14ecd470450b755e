# Compiled, so that no signal comes in the midst of a command that calls it; it has no types of its own.

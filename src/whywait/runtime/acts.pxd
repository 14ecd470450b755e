# Compiled, so that no signal comes in the midst of a command; it has no types of its own.

"""Runtime: authority, scopes and handles: the kernel in real time."""

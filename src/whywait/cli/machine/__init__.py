"""The verbs of the machine: the command line of its service."""

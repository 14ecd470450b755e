"""Support: units, checks of user input, files, locks: knows nothing of tasks."""

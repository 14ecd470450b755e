"""The Ray engine: functions on a cluster."""

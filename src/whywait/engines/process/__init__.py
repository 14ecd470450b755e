"""The process engine: functions in child processes, which can be killed."""

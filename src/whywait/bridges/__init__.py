"""Bridges: the event stream of an authority, carried to where people and tools look.

Each bridge reads events and changes nothing. One that fails says so in the log and harms no task.
"""

from whywait.bridges.chrome import chrome_trace, write_trace
from whywait.bridges.jsonl import JsonLines
from whywait.bridges.logs import LogBridge
from whywait.observe.event_file import read_events

__all__ = ["JsonLines", "LogBridge", "chrome_trace", "read_events", "write_trace"]

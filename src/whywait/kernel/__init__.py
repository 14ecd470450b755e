"""The deterministic scheduling core: no threads, no clock, no I/O.

Commands and a time come in through :class:`~whywait.kernel.kernel.Kernel`, the one door; decisions and events
come out. The same commands at the same times give byte-identical events.
"""

"""Engines: they carry out what the kernel permitted, one file for each technology, one contract (``base``)."""

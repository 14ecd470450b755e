"""Simulation: the kernel in virtual time, its workloads and its results."""

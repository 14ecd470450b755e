"""Observe: what the events of a run tell: one fold, and the story, report, words and record made of it."""

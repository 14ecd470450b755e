"""What the tests of process trees share."""

from process_trees import sleeps, way

__all__ = ["sleeps", "way"]

"""What the attacks share."""

from process_trees import sleeps, way

__all__ = ["sleeps", "way"]


def pytest_addoption(parser):
    parser.addoption("--inputs", type=int, default=150, help="how many hostile files of each kind to try")

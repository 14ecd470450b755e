"""Shared by all tests: helper modules show what differs when one of their assertions fails."""

import pytest

pytest.register_assert_rewrite("pair", "invariants", "explained", "kernel_driver")

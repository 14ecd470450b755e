"""Whether there is something to read."""

import os
import resource
import socket

import pytest

from whywait.support.polling import has_input

BEYOND_SELECT = 1_100


def test_data_and_a_hang_up_are_input():
    one, other = socket.socketpair()
    with one:
        with other:
            assert not has_input(one)
            other.send(b"x")
            assert has_input(one)
            one.recv(1)
            assert not has_input(one)
        assert has_input(one)


def test_a_file_descriptor_may_have_any_number():
    """T4: a program with thousands of open files uses processes and blocks like any other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= BEYOND_SELECT:
        pytest.skip(f"the system lets this process open {hard} files, the test needs {BEYOND_SELECT}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, BEYOND_SELECT + 1), hard))
    reading, writing = os.pipe()
    try:
        os.dup2(reading, BEYOND_SELECT)
        assert not has_input(BEYOND_SELECT)
        os.write(writing, b"x")
        assert has_input(BEYOND_SELECT)
    finally:
        for fd in (reading, writing, BEYOND_SELECT):
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

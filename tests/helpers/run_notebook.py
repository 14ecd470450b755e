"""A program that runs a notebook in a kernel of this interpreter and writes it with its outputs, for test_notebooks.py.

It is a program of its own because what runs kernels keeps threads and sockets until its process ends.
"""

import sys

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

LIMIT_S = 100


class ThisPython(KernelManager):
    """Starts kernels of this interpreter, whatever is installed on the machine."""

    @property
    def kernel_spec(self):
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, language="python")


def main(source, target):
    notebook = nbformat.read(source, as_version=4)
    NotebookClient(notebook, timeout=LIMIT_S, kernel_manager_class=ThisPython).execute()
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""``python -m whywait`` is the ``whywait`` program."""

from whywait.cli import main

if __name__ == "__main__":
    main()

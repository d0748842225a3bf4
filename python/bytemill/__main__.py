"""The program `bytemill`, also `python -m bytemill`."""

import sys


def main() -> int:
    """Runs the command line; Ctrl-C during its imports is an interruption like any other."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""The program `bytemill`, also `python -m bytemill`."""

import signal
import sys


def main() -> int:
    """Runs the command line; Ctrl-C during its imports exits like any other interruption."""
    try:
        from .cli import main as run

        code = run()
    except KeyboardInterrupt:
        code = 130
    # The work is done; Python would print a traceback for Ctrl-C during shutdown.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())

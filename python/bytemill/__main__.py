"""The program `bytemill`, also `python -m bytemill`."""

import signal
import sys


def main() -> int:
    """Runs the command line; Ctrl-C during its imports is an interruption like any other."""
    try:
        from .cli import main as run

        code = run()
    except KeyboardInterrupt:
        code = 130
    # The work is over. Python prints a traceback if Ctrl-C comes while it shuts down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())

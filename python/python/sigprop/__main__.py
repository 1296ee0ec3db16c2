"""The command `sigprop`."""

import signal
import sys

from . import _sigprop


def main() -> int:
    # The command handles Ctrl-C: it ends at once, or saves its results first.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _sigprop.main(["sigprop", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

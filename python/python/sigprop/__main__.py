"""The command `sigprop`."""

import signal
import sys

from . import _sigprop


def main() -> int:
    # Ctrl-C is the command's: it ends at once, or keeps what it has.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _sigprop.main(["sigprop", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

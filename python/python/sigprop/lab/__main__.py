"""The command `python -m sigprop.lab`."""

from __future__ import annotations

import argparse
import sys

from . import LABS, __doc__, run
from ._run import say
from ._trainability import main as trainability


def main() -> int:
    if sys.argv[1:2] == ["trainability"]:
        return trainability(sys.argv[2:])
    parser = argparse.ArgumentParser(
        "python -m sigprop.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:17} {lab.about}" for name, lab in LABS.items())
        + "\ntrainability      Networks drawn at random: how many verdicts come true. Has flags of its own: trainability --help.",
    )
    parser.add_argument("lab", choices=[*LABS, "all"], metavar="LAB", help="one of those below, or all")
    parser.add_argument("-o", "--output", default="lab", help="folder for rows, summary and picture [default: lab]")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches and masks")
    parser.add_argument("--device", default="cpu", help="of torch")
    parser.add_argument("--steps", type=int, help="of every network [default: what the lab says]")
    arguments = parser.parse_args()
    names = list(LABS) if arguments.lab == "all" else [arguments.lab]
    try:
        claims = [
            claim for name in names
            for claim in run(name, arguments.output, arguments.seed, arguments.device, arguments.steps, say)
        ]
    except KeyboardInterrupt:
        return 130
    return 0 if all(claim.came_true for claim in claims) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Experiments that train what was predicted, and say what came true.

    python -m sigprop.lab textbook

Each prints its predictions, trains its networks for a minute or so on two cores, says of every claim whether it came true, and writes
rows, a summary and a picture. Exit status 1 if one did not. Needs `pip install 'sigprop[lab]'`.
"""

from ._lab import Claim, Lab
from ._labs import LABS
from ._run import run

__all__ = ["LABS", "Claim", "Lab", "run"]

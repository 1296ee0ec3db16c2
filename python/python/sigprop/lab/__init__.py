"""Experiments that train networks and check their predictions.

    python -m sigprop.lab textbook

Each experiment prints its predictions, trains its networks for about a minute on two cores, and reports for every claim if it came
true. It writes rows, a summary and a picture. The exit status is 1 if a claim did not come true. Needs `pip install 'sigprop[lab]'`.
"""

from ._lab import Claim, Lab
from ._labs import LABS
from ._run import run

__all__ = ["LABS", "Claim", "Lab", "run"]

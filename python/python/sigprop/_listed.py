"""Lists of schemes and presets."""

from ._call import call
from ._results import Models, Schemes


def schemes() -> Schemes:
    """The initialisation schemes with their arguments, rules and sources.

    >>> "dslm" in schemes()["name"]
    True
    """
    return call("schemes", Schemes, {}, frozenset())


def models() -> Models:
    """The presets with their costs.

    >>> "gpt2" in models()["name"]
    True
    """
    return call("models", Models, {}, frozenset())

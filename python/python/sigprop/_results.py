"""Results of the commands."""

from __future__ import annotations

import copy
import html
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ._model import model_text
from ._table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Result(Table):
    """A table with the whole result of a command, in the format of its JSON (docs/formats.md)."""

    __slots__ = ("_document", "_given", "_svg")

    # The key of the rows in the document.
    _key: ClassVar[str]

    def __init__(
        self,
        document: Mapping[str, Any],
        svg: str | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(document[self._key])
        self._document = document
        self._svg = svg
        # Arguments of the function that returned the result.
        self._given = given or {}

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_given"):
            raise AttributeError(f"{type(self).__name__} is read-only")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._document, self._svg, self._portable())

    def _portable(self) -> dict[str, Any]:
        # A live configuration cannot always be pickled, but its text can.
        given = dict(self._given)
        for name in ("model", "config"):
            if given.get(name) is not None:
                given[name] = model_text(given[name])
        return given

    def __eq__(self, other: object) -> bool:
        return self._document == other._document if isinstance(other, Result) else NotImplemented

    @property
    def svg(self) -> str | None:
        """The picture that the command draws, as SVG; None if there is none."""
        return self._svg

    @property
    def caveats(self) -> list[dict[str, Any]]:
        """Conditions under which numbers are less certain: `kind`, `quantity`, `size`, `text`, `advice`."""
        return copy.deepcopy(self._document.get("caveats", []))

    def to_dict(self) -> dict[str, Any]:
        """The whole document, as `--json` writes it."""
        return copy.deepcopy(dict(self._document))

    def to_json(self) -> str:
        """The whole document as text."""
        return json.dumps(self._document, indent=2)

    # Sentences above the table.
    def _headlines(self) -> list[str]:
        return []

    def __repr__(self) -> str:
        caveats = [f"caveat: {caveat['text']}" for caveat in self._document.get("caveats", [])]
        return "\n".join([*self._headlines(), super().__repr__(), *caveats])

    def _repr_html_(self) -> str:
        caveats = [f"caveat: {caveat['text']}" for caveat in self._document.get("caveats", [])]
        above = "".join(f"<p>{html.escape(line)}</p>" for line in self._headlines())
        below = "".join(f"<p>{html.escape(line)}</p>" for line in caveats)
        return above + (self._svg or "") + super()._repr_html_() + below


class Prediction(Result):
    """The predicted moments of every site."""

    __slots__ = ()
    _key = "sites"
    _summary: ClassVar[tuple[str, ...]] = (
        "site",
        "variance",
        "ln_variance_std",
        "token_correlation",
        "grad_variance",
        "ln_grad_variance_std",
        "grad_token_correlation",
    )

    @property
    def verdict(self) -> str:
        """The verdict in words, with the problems that were found."""
        return str(self._document["verdict"]["headline"])

    @property
    def grade(self) -> str:
        """The grade of the verdict: `healthy`, `trainable_with_care` or `not_trainable`."""
        return str(self._document["verdict"]["grade"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The findings of the verdict: `kind`, `severity`, `text`, `rule`, `block`, `value`."""
        return copy.deepcopy(self._document["verdict"]["findings"])

    @property
    def weights(self) -> Table:
        """Weight tensors and their gradients, for a prediction with `weights=True`."""
        if "weights" not in self._document:
            raise ValueError("weights: expected a prediction with weights=True")
        return Table(self._document["weights"])

    @property
    def cost(self) -> dict[str, float]:
        """Numbers of parameters, operations and bytes."""
        return dict(self._document["cost"])

    @property
    def loss(self) -> dict[str, float] | None:
        """The initial loss, for a prediction with `head` and `loss`; None for others."""
        return dict(self._document["loss"]) if "loss" in self._document else None

    def _headlines(self) -> list[str]:
        return [f"{self._document['stack']}: {self.verdict}"]

    if TYPE_CHECKING:

        def against(self, observed: Any) -> Validation: ...

    def plot(self, ax: Axes | None = None, quantity: str = "variance") -> Axes:
        """Plots a quantity of the stream over depth with matplotlib, with the standard deviation over initialisations as a band."""
        ax = _axes(ax)
        # The stream is the last site of a block.
        stream = np.append(self["layer"][1:] != self["layer"][:-1], True)
        layers, values = self["layer"][stream], self[quantity][stream]
        (line,) = ax.plot(layers, values, label=quantity)
        spread = self.get(f"ln_{quantity}_std")
        if spread is not None:
            factor = np.exp(np.nan_to_num(spread[stream]))
            ax.fill_between(layers, values / factor, values * factor, alpha=0.2, color=line.get_color())
        return _over_depth(ax, quantity)


class Validation(Result):
    """Predicted and observed values, number by number."""

    __slots__ = ()
    _key = "comparisons"
    _summary: ClassVar[tuple[str, ...]] = ("site", "quantity", "predicted", "observed", "std_error", "relative_error", "z")

    @property
    def r2(self) -> float | None:
        """R² of ln variance and ln grad_variance together."""
        r2: float | None = self._document["pooled"]["r2_log"]
        return r2

    @property
    def quantities(self) -> Table:
        """The agreement for each quantity: R², percentiles of the relative errors, share within 2 standard errors (by Student's t)."""
        of = {**self._document["quantities"], "pooled": self._document["pooled"]}
        return Table([{"quantity": name, **fit} for name, fit in of.items()])

    def _headlines(self) -> list[str]:
        fit = self._document["pooled"]
        r2 = "none" if fit["r2_log"] is None else f"{fit['r2_log']:.5f}"
        return [f"{self._document['stack']}: R² (ln) of variances and gradients {r2}, {fit['count']} numbers"]

    def plot(self, ax: Axes | None = None, quantity: str = "variance") -> Axes:
        """Plots predictions as a line and observations as points with intervals of 95 %, with matplotlib."""
        ax = _axes(ax)
        here = self["quantity"] == quantity
        layers, predicted, observed = (self[name][here] for name in ("layer", "predicted", "observed"))
        ax.plot(layers, predicted, label="predicted")
        errors = 2 * np.nan_to_num(self["std_error"][here])
        ax.errorbar(layers, observed, yerr=errors, fmt=".", label="observed")
        ax.legend()
        return _over_depth(ax, quantity)


class Measurement(Validation):
    """Moments of sampled networks: columns observed and std_error."""

    __slots__ = ()
    _summary: ClassVar[tuple[str, ...]] = ("site", "quantity", "observed", "std_error")

    def _headlines(self) -> list[str]:
        return [f"{self._document['stack']}: {self._document.get('replicates')} networks"]


class Comparison(Result):
    """A comparison of initialisation schemes."""

    __slots__ = ()
    _key = "schemes"
    _summary: ClassVar[tuple[str, ...]] = (
        "scheme",
        "forward",
        "backward",
        "token_correlation",
        "score_std",
        "gradient_ratio",
        "verdict",
    )

    def _headlines(self) -> list[str]:
        return [str(self._document["network"])]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plots the factors on variance and gradient over all blocks, with matplotlib."""
        ax = _axes(ax)
        place = np.arange(len(self.rows))
        for offset, name in ((-0.2, "forward"), (0.2, "backward")):
            ax.barh(place + offset, self[f"ln_{name}"] / np.log(10), height=0.4, label=name)
        ax.set_yticks(place, list(self["scheme"]))
        ax.set_xlabel("log10 of the factor over all blocks")
        ax.invert_yaxis()
        ax.legend()
        return ax


class Recommendation(Result):
    """An initialisation that meets demands, with one row per demand."""

    __slots__ = ()
    _key = "demands"

    @property
    def scheme(self) -> str:
        """The recommended scheme, in the form of the argument `scheme` of other functions."""
        return str(self._document["scheme"])

    @property
    def is_feasible(self) -> bool:
        """True if all demands are met."""
        return bool(self._document["feasible"])

    @property
    def stds(self) -> dict[str, float]:
        """The standard deviation of every parameter."""
        return dict(self._document["stds"])

    def _headlines(self) -> list[str]:
        met = "meets all demands" if self.is_feasible else "meets as much as can be met"
        return [f"{self.scheme} {met}"]


class PhaseMap(Result):
    """A map of the region where a network can be trained, over two of its numbers."""

    __slots__ = ()
    _key = "cells"
    _summary: ClassVar[tuple[str, ...]] = ("x", "y", "forward_depth", "backward_depth", "correlation_depth", "token_correlation")

    def _headlines(self) -> list[str]:
        x, y = (self._document[axis]["name"] for axis in "xy")
        return [f"{self._document['network']}: x {x}, y {y}"]

    def plot(self, ax: Axes | None = None, quantity: str = "backward_depth") -> Axes:
        """Plots a column as a map, with matplotlib."""
        ax = _axes(ax)
        x, y = (self._document[axis] for axis in "xy")
        order = np.lexsort((self["x"], self["y"]))
        values = self[quantity][order].reshape(len(y["values"]), len(x["values"]))
        image = ax.pcolormesh(x["values"], y["values"], values, shading="nearest")
        for axis, scale in ((x, ax.set_xscale), (y, ax.set_yscale)):
            if axis["log"]:
                scale("log")
        ax.set_xlabel(x["name"])
        ax.set_ylabel(y["name"])
        ax.figure.colorbar(image, ax=ax, label=quantity.replace("_", " "))
        return ax


class Inspection(Result):
    """The weights of a checkpoint, compared with those that it should have."""

    __slots__ = ()
    _key = "tensors"
    _summary = ("tensor", "parameter", "std", "scheme_std", "ratio", "z", "deviates")

    @property
    def headline(self) -> str | None:
        """The conclusion in a sentence; None if nothing says how the weights should be."""
        headline: str | None = self._document["headline"]
        return headline

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The problems, the most serious first: `problem`, `tensors`, `blocks`, `text`, `value`."""
        return copy.deepcopy(self._document["findings"])

    @property
    def prediction(self) -> Prediction | None:
        """The prediction for the network with these weights; None if it is unknown or they are not finite."""
        document = self._document.get("prediction")
        return None if document is None else Prediction(document)

    def _headlines(self) -> list[str]:
        findings = [finding["text"] for finding in self._document["findings"]]
        return ([] if self.headline is None else [self.headline]) + findings


class Schemes(Result):
    """The initialisation schemes."""

    __slots__ = ()
    _key = "schemes"
    _summary: ClassVar[tuple[str, ...]] = ("usage", "source")


class Models(Result):
    """The presets with their costs."""

    __slots__ = ()
    _key = "models"


def _over_depth(ax: Axes, quantity: str) -> Axes:
    if quantity.endswith("variance"):
        ax.set_yscale("log")
    ax.set_xlabel("block")
    ax.set_ylabel(quantity.replace("_", " "))
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install 'sigprop[plot]'") from None
    return plt.subplots()[1]

"""Components with one input as parts of stacks, and the tensors in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ._components import (
    Activation,
    Attention,
    Component,
    Convolution,
    DropPath,
    Dropout,
    Gains,
    Linear,
    Norm,
    Pool,
    Positions,
    Prepend,
    Product,
    Refusal,
    Rotary,
    Scale,
    Shift,
    Weight,
)
from ._graph import Unplaced
from ._names import tensor_name
from ._roles import Role
from ._weights import initialisation, rms, standardised_length

Part = dict[str, Any]
# Gains per feature whose standard deviation is a larger part of their root mean square are reported.
_SPREAD = 0.1


@dataclass
class Parts:
    """The tensors of a stack."""

    # True for a network that gets the values of all tensors: without distributions, and with fixed positions as tables, because
    # the order of their features is not in stacks.
    is_exact: bool
    roles: dict[str, Role] = field(default_factory=dict)
    # All tensors, by name in the stack.
    weights: dict[str, Weight] = field(default_factory=dict)
    # What gains per feature are multiples of their root mean square by, by site, and for sums by site and number of the branch.
    gains_of: dict[tuple[str, int | None], Tensor] = field(default_factory=dict)
    # The weights of maps, in the order of the stack.
    maps: list[Weight] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # The first site of the norms with these gains.
    _norms: dict[tuple[str, float], str] = field(default_factory=dict)
    _initialised: dict[str, str | Part] = field(default_factory=dict)

    def owner(self, component: Component, site: str) -> str:
        """The site that owns the parameters of a component at `site`: the first norm with the same gains, or `site` itself."""
        if not isinstance(component, Norm) or component.gain is None:
            return site
        return self._norms.setdefault((component.gain.name, rms(component.gain.value)), site)

    def component(self, component: Component, site: str, role: str, block: int | None) -> Part:
        """A component with one input."""
        if isinstance(component, Linear):
            fans = {"fan_in": component.inputs[0].width, "fan_out": component.width}
            return {"linear": {**fans, **self.map(component, role, block)}}
        if isinstance(component, Convolution):
            sizes = {name: getattr(component, name) for name in ("fan_in", "kernel", "stride", "padding", "groups", "causal")}
            image = {} if component.image is None else {"image": _image(component.image)}
            return {"convolution": {**sizes, **image, "fan_out": component.width, **self.map(component, role, block)}}
        if isinstance(component, Pool):
            sizes = {name: getattr(component, name) for name in ("kind", "kernel", "stride", "padding")}
            return {"pool": {**sizes, "image": _image(component.image)}}
        if isinstance(component, Norm):
            return {"norm": self._norm(component, self.owner(component, site))}
        if isinstance(component, Activation):
            return {"activation": component.function}
        if isinstance(component, Scale):
            return {"scale": {"factor": component.factor}}
        if isinstance(component, Gains):
            return {"scale": {"factor": self.gains(component, site, None)}}
        if isinstance(component, Dropout):
            return {"dropout": {"rate": component.rate}}
        if isinstance(component, Rotary):
            return {"rotary": {"d_head": component.d_head, "frequencies": component.frequencies}}
        if isinstance(component, Prepend):
            return {"prepend": {"token": self.tensor(component.token, "token", block)}}
        if isinstance(component, (Positions, Shift)):
            return {"embedding": self.term(component, block)}
        if isinstance(component, DropPath):
            raise Unplaced(component, "stochastic depth of a signal; expected it at the end of a residual branch")
        raise Unplaced(component, f"a {kind_of(component)} inside the network; expected it as the source of a stream")

    def term(self, term: Positions | Shift, block: int | None = None) -> Part:
        """A summand of embeddings."""
        if isinstance(term, Shift):
            return {"constant": {"table": self.tensor(term.vector, "constant", block), "rows": 1}}
        if term.sinusoid is not None and not self.is_exact:
            return {"sinusoidal_position": {"scale": term.sinusoid}}
        entries = term.table.value
        # Six standard errors of a table that is random.
        most = 0.1 if term.table.origin is None else max(0.1, 6.0 / math.sqrt(entries.numel()))
        if not self.is_exact and abs(float(entries.mean())) > most * rms(entries):
            raise Unplaced(term, "a table of positions whose entries have a mean; expected sinusoids, or entries around zero")
        return {"learned_position": {"table": self.tensor(term.table, "positions", block)}}

    def map(self, component: Linear | Convolution, role: str, block: int | None) -> Part:
        """Weight and bias."""
        if role != "head":
            self.maps.append(component.weight)
        part: Part = {"weight": self.tensor(component.weight, role, block, is_map=True)}
        length = standardised_length(component.weight.value)
        if isinstance(component, Linear) and length is not None and not self.is_exact:
            part["standardised"] = length
        return part if component.bias is None else {**part, "bias": self.tensor(component.bias, role, block)}

    def tensor(self, weight: Weight, role: str, block: int | None, is_map: bool = False) -> Part:
        name = tensor_name(weight.name)
        self.weights[name] = weight
        self.roles.setdefault(name, Role(role, block, is_map))
        return {"name": name, "init": self._init(weight, role)}

    def gains(self, gains: Gains, site: str, branch: int | None) -> float:
        """The number in place of gains per feature: their root mean square."""
        mean = rms(gains.gain.value)
        own = gains.gain.value / (mean or 1.0)
        spread = float(own.std(correction=0))
        if spread > _SPREAD:
            self.notes.append(f"{site}: gains differ by {100.0 * spread:.0f} % between features: predictions take them as equal")
        key = (site, branch)
        self.gains_of[key] = self.gains_of[key] * own if key in self.gains_of else own
        return mean

    def _norm(self, norm: Norm, site: str) -> Part:
        part: Part = {"kind": norm.kind, "eps": norm.eps, "gain": 1.0, "groups": norm.groups}
        if norm.gain is not None:
            part["gain"] = rms(norm.gain.value)
            self.weights[f"{site}.gain"] = norm.gain
        if norm.bias is not None and float(norm.bias.value.abs().max()) > 0.0:
            part["bias"] = self._init(norm.bias, "norm")
        if norm.bias is not None:
            self.weights[f"{site}.bias"] = norm.bias
        return part

    def _init(self, weight: Weight, role: str) -> str | Part:
        if self.is_exact:
            return "zero"
        if weight.name not in self._initialised:
            value = weight.value
            if not bool(value.isfinite().all()):
                raise Refusal(f"{weight.name} has entries that are not finite; expected an initialised module")
            if role == "embedding" and bool(value.any()):
                # Rows of padding are zero, and sequences have none.
                value = value[value.any(dim=1)]
            self._initialised[weight.name] = initialisation(value)
        return self._initialised[weight.name]


def renamed(part: Any, rename: Callable[[str], str]) -> Any:
    """A part of a stack with other names of tensors."""
    if isinstance(part, list):
        return [renamed(inner, rename) for inner in part]
    if not isinstance(part, dict):
        return part
    found = {name: renamed(inner, rename) for name, inner in part.items()}
    if "shared_with" in part:
        found["shared_with"] = rename(part["shared_with"])
    return {**found, "name": rename(part["name"])} if "init" in part and "name" in part else found


def kind_of(component: Component) -> str:
    """A word for a component."""
    if isinstance(component, Activation):
        return component.function if isinstance(component.function, str) else next(iter(component.function))
    words: dict[type[Component], str] = {Attention: "heads", Product: "gated", Prepend: "token"}
    return words.get(type(component), type(component).__name__.lower())


def _image(size: tuple[int, int]) -> Part:
    return {"height": size[0], "width": size[1]}

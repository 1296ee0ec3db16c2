"""Measures the moments of the signals and gradients of a live module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, overload

import torch
from torch import Tensor, nn

from .._model import Model
from .._table import Table
from ._network import Network, Node
from ._structure import Piece, Structure, planned_for, uncompiled

# "stream", "all", or names of sites.
Sites = Union[Literal["stream", "all"], Sequence[str]]
# Arguments of the module: by name, in their order, or a single one.
Batch = Union[Mapping[str, Any], tuple[Any, ...], Tensor]
# The moments that `moments_of` computes from the sums of a signal, by name.
Moments = dict[str, float]


class Observed(Table):
    """Moments of one or several networks, in the form that `prediction.against` takes: site, quantity, observed, std_error.

    `one + other` has the networks of both: means over networks, with jackknife standard errors.
    """

    __slots__ = ("networks",)

    def __init__(self, networks: Sequence[Mapping[str, Moments]]) -> None:
        self.networks = list(networks)
        super().__init__(_rows(self.networks))

    def __add__(self, other: Observed) -> Observed:
        return Observed([*self.networks, *other.networks])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.networks,)


def _quantities(moments: Moments) -> dict[str, float]:
    """The quantities that are compared, from mean moments."""
    found: dict[str, float] = {}
    if "square" in moments:
        mean = moments["mean"]
        found["mean"] = mean
        found["variance"] = variance = max(moments["square"] - mean**2, 0.0)
        if "cross" in moments and variance > 0.0:
            found["token_correlation"] = (moments["cross"] - mean**2) / variance
    if "grad_square" in moments:
        found["grad_variance"] = square = moments["grad_square"]
        if "grad_cross" in moments and square > 0.0:
            found["grad_token_correlation"] = moments["grad_cross"] / square
    if "weight" in moments:
        found["weight_grad_second_moment"] = moments["weight"]
    return found


def _rows(networks: Sequence[Mapping[str, Moments]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    count = len(networks)
    for site in networks[0] if networks else ():
        each = [network[site] for network in networks]
        total = {name: math.fsum(moments[name] for moments in each) for name in each[0]}
        of_all = _quantities({name: value / count for name, value in total.items()})
        without = [
            _quantities({name: (value - moments[name]) / (count - 1) for name, value in total.items()})
            for moments in (each if count > 1 else ())
        ]
        for quantity, observed in of_all.items():
            left = [one[quantity] for one in without if quantity in one]
            error = None
            if len(left) == count > 1:
                centre = math.fsum(left) / count
                error = math.sqrt((count - 1) / count * math.fsum((value - centre) ** 2 for value in left))
            rows.append({"site": site, "quantity": quantity, "observed": observed, "std_error": error})
    return rows


class Probe:
    """Measures a module while it runs. See `probe`."""

    def __init__(
        self,
        model: nn.Module,
        config: Model | None = None,
        sites: Sites | None = None,
        weights: bool = True,
        loss: bool = False,
    ) -> None:
        self._module = uncompiled(model)
        self._structure = _structure(self._module, config)
        self._sites = set(_chosen(sites, self._structure))
        self._pieces = self._structure.pieces if weights else []
        self._loss = loss
        self._mask: Tensor | None = None
        self._sequences = 1
        self._end: Tensor | None = None
        self._is_seeded = False
        self._hooks: list[Any] = []
        self._sums: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}

    def __enter__(self) -> Probe:
        end = self._structure.end
        self._hooks.append(self._module.register_forward_pre_hook(self._begin, with_kwargs=True))
        for site, module in self._structure.inputs.items():
            if site in self._sites:
                self._hooks.append(module.register_forward_pre_hook(self._at_input(site), with_kwargs=True))
        for site, module in self._structure.outputs.items():
            if site in self._sites or site == end:
                self._hooks.append(module.register_forward_hook(self._at_output(site, site == end)))
        for piece in self._pieces:
            if piece.parameter.requires_grad and not _is_sharded(piece.parameter):
                self._hooks.append(_on_gradient(piece.parameter, self._at_weight(piece)))
        return self

    def __exit__(self, *_: object) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        self._end = None

    def backward(self, generator: torch.Generator | None = None) -> None:
        """Sends N(0, 1) gradients back from the output of the final norm, where predictions start. Masked tokens get none.

        Raises:
            ValueError: If the module has not run.
        """
        if self._end is None:
            raise ValueError("backward: expected a module that has run, inside `with probe(model)`")
        end = self._end
        seed = _seed(self._module, end, _of_rank(generator, end.device))
        if self._mask is not None and self._mask.shape == end.shape[:2]:
            seed = seed * self._mask.to(seed)[..., None]
        self._is_seeded = True
        self._backward_through_shards(end, seed)

    @property
    def observed(self) -> Observed:
        """The measurements so far, over all ranks of torch.distributed.

        Raises:
            ValueError: If a gradient did not come from `backward` and `loss` is not set.
        """
        if self._weights_or_gradients() and not (self._is_seeded or self._loss):
            raise ValueError(
                "gradients: expected those that `probe.backward()` sends from behind the final norm, as predictions do, "
                "got others; loss=True measures them, for a prediction with head and loss"
            )
        sums = {**self._sums, **self._weights}
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for total in sums.values():
                torch.distributed.all_reduce(total)
        held = {name: total.cpu().tolist() for name, total in sums.items()}
        moments: dict[str, Moments] = {}
        for site in self._structure.sites:
            if site in self._sites and site in held:
                moments[site] = moments_of(held[site], held.get(f"gradient of {site}"))
        for piece in self._pieces:
            if f"weight {piece.tensor}" in held:
                square, count = held[f"weight {piece.tensor}"]
                # A tensor may have the name of its site.
                moments.setdefault(piece.tensor, {})["weight"] = square / count
        return Observed([moments])

    def _weights_or_gradients(self) -> bool:
        return bool(self._weights) or any(name.startswith("gradient of ") for name in self._sums)

    def _begin(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        mask = kwargs.get("attention_mask")
        self._mask = mask.detach() if isinstance(mask, Tensor) and mask.dim() == 2 else None

    def _at_input(self, site: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._measure(site, args[0] if args else kwargs["hidden_states"])

        return hook

    def _at_output(self, site: str, is_end: bool) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(module, Node) and not module.is_told(*args):
                return
            signal = output if isinstance(output, Tensor) else output[0]
            if is_end:
                self._end = signal
            if site in self._sites:
                self._measure(site, signal)

        return hook

    def _measure(self, site: str, signal: Tensor) -> None:
        self._add(site, signal)
        if signal.requires_grad:
            _on_gradient(signal, lambda gradient: self._add(f"gradient of {site}", gradient))

    @torch.no_grad()
    def _add(self, name: str, signal: Tensor) -> None:
        """Adds the sums of a signal or gradient, without waiting for the device."""
        # Shape (batch, tokens, features); a signal without tokens gets one.
        signal = signal if signal.dim() > 2 else signal[:, None]
        self._sequences = signal.shape[0]
        # Heads of attention weights count as sequences.
        sums = sums_of(signal.flatten(0, -3) if signal.dim() > 3 else signal, self._mask)
        self._sums[name] = sums + self._sums[name] if name in self._sums else sums

    def _at_weight(self, piece: Piece) -> Callable[[Tensor], None]:
        return lambda gradient: self._add_weight(piece, gradient)

    @torch.no_grad()
    def _add_weight(self, piece: Piece, gradient: Tensor, factor: float = 1.0) -> None:
        if piece.indices is not None:
            gradient = gradient.index_select(piece.axis, torch.tensor(piece.indices, device=gradient.device))
        # Per sequence, as predictions are: gradients of different sequences are uncorrelated.
        square = factor * _wide(gradient).square().mean()
        sums = torch.stack([square, torch.full_like(square, self._sequences)])
        name = f"weight {piece.tensor}"
        self._weights[name] = sums + self._weights[name] if name in self._weights else sums

    def _backward_through_shards(self, end: Tensor, seed: Tensor) -> None:
        """Runs the backward pass. Hooks get no gradients of parameters cut by fully_shard, whose gradients are means over ranks."""
        sharded = [piece for piece in self._pieces if _is_sharded(piece.parameter)]
        held = {piece.parameter: piece.parameter.grad for piece in sharded}
        for parameter in held:
            parameter.grad = None
        end.backward(seed)  # type: ignore[no-untyped-call]
        for piece in sharded:
            if piece.parameter.grad is not None:
                gradient: Tensor = piece.parameter.grad.full_tensor()  # type: ignore[attr-defined]
                # For the sum over ranks, each of which adds this gradient.
                self._add_weight(piece, gradient, float(torch.distributed.get_world_size()))
        for parameter, before in held.items():
            if before is not None:
                parameter.grad = before if parameter.grad is None else before + parameter.grad


def _is_sharded(parameter: Tensor) -> bool:
    return hasattr(parameter, "full_tensor")


def _structure(module: nn.Module, config: Model | None) -> Structure:
    if isinstance(module, Network):
        return Structure.of_network(module)
    return Structure.of(module, planned_for(module, config))


def _chosen(sites: Sites | None, structure: Structure) -> Sequence[str]:
    if sites is None or sites == "stream":
        return structure.stream
    if sites == "all":
        return structure.sites
    for site in sites:
        if site not in structure.sites:
            raise ValueError(f"sites: expected some of {', '.join(structure.sites)}, got {site}")
    return sites


def _of_rank(generator: torch.Generator | None, device: torch.device) -> torch.Generator | None:
    """A generator that differs between ranks, so that ranks with the same seed have independent gradients."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return generator
    on = device if generator is None else generator.device
    drawn = int(torch.randint(2**62, (), generator=generator, device=on))
    return torch.Generator(on).manual_seed(drawn + torch.distributed.get_rank())


def _seed(module: nn.Module, end: Tensor, generator: torch.Generator | None) -> Tensor:
    if isinstance(module, Network):
        return module.gradient(end, generator)
    device = end.device if generator is None else generator.device
    return torch.randn(end.shape, generator=generator, device=device).to(end)


def _on_gradient(signal: Tensor, hook: Callable[[Tensor], None]) -> Any:
    return signal.register_hook(hook)  # type: ignore[no-untyped-call]


def _wide(signal: Tensor) -> Tensor:
    """The signal in f64, or in f32 if the device has no f64."""
    return signal.detach().to(torch.float32 if signal.device.type == "mps" else torch.float64)


def sums_of(signal: Tensor, mask: Tensor | None = None) -> Tensor:
    """The counts of entries and of pairs of tokens, and the sums of entries, squares and products of pairs.

    Args:
        signal: Shape (batch, tokens, features).
        mask: Shape (batch, tokens): zero for tokens to leave out. One of another shape is not used.
    """
    signal = _wide(signal)
    if mask is not None and mask.shape == signal.shape[:2]:
        here = mask.to(signal)
        signal = signal * here[..., None]
    else:
        here = torch.ones_like(signal[..., 0])
    tokens = here.sum(1)
    squares = signal.square().sum()
    return torch.stack(
        [
            tokens.sum() * signal.shape[-1],
            (tokens * (tokens - 1)).sum() * signal.shape[-1],
            signal.sum(),
            squares,
            signal.sum(1).square().sum() - squares,
        ]
    )


def moments_of(signal: list[float], gradient: list[float] | None) -> Moments:
    """Means from the sums of a signal and of its gradient."""
    entries, pairs, total, squares, products = signal
    found = {"mean": total / entries, "square": squares / entries}
    if pairs > 0:
        found["cross"] = products / pairs
    if gradient is not None:
        entries, pairs, _, squares, products = gradient
        found["grad_square"] = squares / entries
        if pairs > 0:
            found["grad_cross"] = products / pairs
    return found


@overload
def probe(
    model: nn.Module,
    batch: None = None,
    config: Model | None = None,
    sites: Sites | None = None,
    weights: bool = True,
    loss: bool = False,
) -> Probe: ...


@overload
def probe(
    model: nn.Module,
    batch: Batch,
    config: Model | None = None,
    sites: Sites | None = None,
    weights: bool = True,
    loss: bool = False,
    generator: torch.Generator | None = None,
) -> Observed: ...


def probe(
    model: nn.Module,
    batch: Batch | None = None,
    config: Model | None = None,
    sites: Sites | None = None,
    weights: bool = True,
    loss: bool = False,
    generator: torch.Generator | None = None,
) -> Observed | Probe:
    """Measures second moments and token correlations of a live module, forward and backward, site by site.

    With a batch it runs the module, sends N(0, 1) gradients back from the output of the final norm, as predictions do, and
    returns the measurements (`Observed`). Without a batch it is a context manager around your own runs:

        with sigprop.torch.probe(model) as probe:
            model(**batch)
            probe.backward()
        prediction.against(probe.observed)

    Sums are kept on the device in f64, and are read together with `observed`. Tokens that `attention_mask` hides are left out.
    Under autocast, signals have the lower precision. A module compiled by torch.compile runs uncompiled. Ranks of
    torch.distributed form one batch; gradients of parameters that fully_shard has cut are measured only by `backward`.
    Tokens whose embedding is zero, such as those of a `padding_idx`, have gradients before a norm that no prediction has: hide
    them, or use ids without them.

    Args:
        model: Any module whose parameters have the names of its configuration, after any prefix, or one of `build`.
        batch: Arguments of the module: a dict by name, a tuple, or a single one.
        config: The description of the module, as MODEL of `sigprop.predict` [default: `model.config`].
        sites: Only these sites, such as "blocks.0". "all" includes those inside blocks, for modules of `build` [default: "stream"].
        weights: Also measure the gradients of parameters.
        loss: Gradients come from your own loss. Compare them with a prediction with head and loss.
        generator: The generator of the gradients that are sent back.

    Raises:
        ValueError: If the module does not have the parameters that its configuration describes.
    """
    running = Probe(model, config, sites, weights, loss)
    if batch is None:
        return running
    with running, torch.enable_grad():
        module = running._module
        if isinstance(batch, Mapping):
            module(**batch)
        else:
            module(*(batch if isinstance(batch, tuple) else (batch,)))
        parameters = list(module.parameters())
        held = [parameter.grad for parameter in parameters]
        # Gradients accumulate in place.
        for parameter in parameters:
            parameter.grad = None
        running.backward(generator)
        for parameter, gradient in zip(parameters, held, strict=True):
            parameter.grad = gradient
    return running.observed

"""Measures the moments of the signals and gradients of a live module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, overload

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._model import Model
from ._network import Network, Node
from ._observed import Moments, Observed, moments_of, sums_of, wide
from ._structure import Piece, Structure, Tap, planned_for
from ._trace import Traced
from ._trace._places import tensors_of
from ._wrappers import uncompiled

# "stream", "all", or names of sites.
Sites = Union[Literal["stream", "all"], Sequence[str]]
# Arguments of the module: by name, in their order, or a single one.
Batch = Union[Mapping[str, Any], tuple[Any, ...], Tensor]


class Probe:
    """Measures a module while it runs. See `probe`."""

    def __init__(
        self,
        model: nn.Module,
        config: Model | Traced | None = None,
        sites: Sites | None = None,
        weights: bool = True,
        loss: bool = False,
    ) -> None:
        self._module = uncompiled(model)
        self._structure = _structure(self._module, config)
        self._sites = set(_chosen(sites, self._structure))
        # The sites that are no input or output of a module.
        self._untapped = [site for site in (*self._sites, self._structure.end) if site not in self._structure.taps]
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
        if self._untapped:
            raise ValueError(
                f"sites: expected inputs or outputs of modules, got {self._untapped[0]}, which is inside the code of one; "
                "`probe(model, batch, traced)` with the shapes of the trace measures it"
            )
        self._hooks.append(self._module.register_forward_pre_hook(self._begin, with_kwargs=True))
        for site, tap in self._structure.taps.items():
            if site in self._sites or site == self._structure.end:
                self._hooks.append(self._tapped(site, tap))
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

    def _tapped(self, site: str, tap: Tap) -> Any:
        def at_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            signal = tensors_of((args, kwargs))[tap.number]
            if module is not self._module or signal.requires_grad:
                return self._at(site, signal)
            # The input of the whole network, whose gradient is measured.
            given = signal.detach().requires_grad_()
            self._at(site, given)
            return pytree.tree_map(lambda leaf: given if leaf is signal else leaf, (args, kwargs))

        def at_output(module: nn.Module, args: Any, output: Any) -> None:
            if not isinstance(module, Node) or module.is_told(*args):
                self._at(site, tensors_of(output)[tap.number])

        if tap.is_input:
            return tap.module.register_forward_pre_hook(at_input, with_kwargs=True)
        return tap.module.register_forward_hook(at_output)

    def _at(self, site: str, signal: Tensor) -> None:
        if site == self._structure.end:
            self._end = signal
        if site in self._sites:
            self._measure(site, signal)

    def _measure(self, site: str, signal: Tensor) -> None:
        self._add(site, signal)
        if signal.requires_grad:
            _on_gradient(signal, lambda gradient: self._add(f"gradient of {site}", gradient))

    @torch.no_grad()
    def _add(self, name: str, signal: Tensor) -> None:
        """Adds the sums of a signal or gradient, without waiting for the device."""
        # Shape (batch, tokens, features).
        if signal.dim() == 2:
            signal = signal[None] if self._structure.is_one_sequence else signal[:, None]
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
        if piece.has_unused_rows:
            gradient = gradient[gradient.flatten(1).any(1)]
        # Per sequence, as predictions are: gradients of different sequences are uncorrelated.
        square = factor * wide(gradient).square().mean()
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


def _structure(module: nn.Module, config: Model | Traced | None) -> Structure:
    if isinstance(module, Network):
        return Structure.of_network(module)
    if isinstance(config, Traced):
        return Structure.of_traced(module, config)
    return Structure.of(module, planned_for(module, config))


def _chosen(sites: Sites | None, structure: Structure) -> Sequence[str]:
    if sites is None or sites == "stream":
        return structure.stream
    if sites == "all":
        return structure.sites
    known = dict.fromkeys((*structure.stream, *structure.sites))
    for site in sites:
        if site not in known:
            raise ValueError(f"sites: expected some of {', '.join(known)}, got {site}")
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


@overload
def probe(
    model: nn.Module,
    batch: None = None,
    config: Model | Traced | None = None,
    sites: Sites | None = None,
    weights: bool = True,
    loss: bool = False,
) -> Probe: ...


@overload
def probe(
    model: nn.Module,
    batch: Batch,
    config: Model | Traced | None = None,
    sites: Sites | None = None,
    weights: bool = True,
    loss: bool = False,
    generator: torch.Generator | None = None,
) -> Observed: ...


def probe(
    model: nn.Module,
    batch: Batch | None = None,
    config: Model | Traced | None = None,
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

    Sites of a traced module are measured where they are inputs or outputs of modules, which a run on its example decides by values
    and gradients, for a batch of any shape. If one of them is inside the code of a module, such as a sum in its `forward`, the
    captured graph runs instead of the module, for a batch of the shapes of the trace.

    Args:
        model: Any module whose parameters have the names of its configuration, after any prefix, or one of `build`.
        batch: Arguments of the module: a dict by name, a tuple, or a single one.
        config: The description of the module, as MODEL of `sigprop.predict`, or the module as `trace` reads it
            [default: `model.config`].
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
    if isinstance(config, Traced) and running._untapped:
        return _replayed(running, config, batch, generator)
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


def _replayed(running: Probe, traced: Traced, batch: Batch, generator: torch.Generator | None) -> Observed:
    """The measurements in a run of the captured graph."""
    inputs = tensors_of(batch)
    got, expected = ([tuple(value.shape) for value in values] for values in (inputs, traced.inputs))
    if got != expected:
        raise ValueError(
            f"batch: expected the shapes of the trace, {expected}, because {running._untapped[0]} is inside the code of a module, "
            f"got {got}"
        )
    [found] = traced.observe(running._module, generator, inputs).networks
    wanted = running._sites | {piece.tensor for piece in running._pieces}
    return Observed([{name: moments for name, moments in found.items() if name in wanted}])

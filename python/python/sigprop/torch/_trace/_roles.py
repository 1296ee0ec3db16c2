"""The roles of weights in a network, as schemes of initialisation know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._components import Activation, Attention, Component, Concat, Convolution, Linear, Product, Recurrence, Weight


@dataclass(frozen=True)
class Role:
    """The role of a tensor."""

    # As in stack files: "query", "key", "value", "attention_output", "ffn_in", "ffn_gate", "ffn_up", "ffn_out", "router", "head", and
    # "other" for all other maps. Tables and vectors are "embedding", "positions", "constant" and "token".
    name: str
    # The number of the block; None outside blocks.
    block: int | None
    # True for the weight of a map, false for tables, vectors and biases.
    is_map: bool


def roles_part(roles: Mapping[str, Role]) -> dict[str, Any]:
    """The roles of the weights of maps, as stack files have them."""
    maps = {name: role for name, role in roles.items() if role.is_map}
    return {name: {"kind": role.name, **({} if role.block is None else {"block": role.block})} for name, role in maps.items()}


def roles_of(chain: Sequence[Component], branch: str) -> list[str]:
    """The role of every component of a chain; empty for those without weights of their own.

    Args:
        branch: "query", "key" or "value" for the chains of attention, "branch" for one of a sum, "factor" for one of a product,
            empty in a stream or block.
    """
    has_activation = any(isinstance(component, Activation) for component in chain)
    has_attention = any(isinstance(component, (Attention, Recurrence)) for component in chain)
    roles: list[str] = []
    before: Component | None = None
    is_after = False
    for component in chain:
        role = ""
        if isinstance(component, (Linear, Convolution)):
            if branch in ("query", "key", "value"):
                role = branch
            elif branch == "factor":
                role = "ffn_gate" if has_activation else "ffn_up"
            elif isinstance(before, (Attention, Recurrence)):
                role = "attention_output"
            elif branch == "branch" and not has_attention:
                role = "ffn_out" if is_after else "ffn_in"
            else:
                role = "other"
        elif isinstance(component, Concat) and branch in ("query", "key", "value"):
            role = branch
        if isinstance(component, (Linear, Attention, Recurrence)):
            before = component
        is_after = is_after or isinstance(component, (Activation, Product))
        roles.append(role)
    return roles

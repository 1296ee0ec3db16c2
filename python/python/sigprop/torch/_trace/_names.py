"""Names of sites: paths of modules, unique, and free of the names that modules of PyTorch have themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

from .._network import Network, Node
from ._capture import unwrapped
from ._components import Attention, Component, Convolution, Linear, Mixture, Norm, Product, Sum
from ._graph import Graph

_RESERVED = {*dir(nn.Module()), *dir(Network), *dir(Node), "site", "shape", "stack", "source", "softmax"}


class Names:
    """The names that are given, and the containers of modules with weights."""

    def __init__(self, components: Iterable[Component]) -> None:
        self._taken: set[str] = set()
        self._groups: set[str] = set()
        self._uses: dict[str, int] = {}
        self._containers: set[str] = {""}
        for component in components:
            if isinstance(component, (Linear, Convolution, Norm, Attention)):
                self._uses[component.path] = self._uses.get(component.path, 0) + (not isinstance(component, Attention))
                self._containers |= set(_prefixes(component.path))

    def take(self, owner: str, name: str) -> str:
        """A name inside the owner, the wanted one if its site is free."""
        wanted = ".".join(f"{step}_" if step in _RESERVED or not step else step for step in name.split("."))
        # A name that others begin with gets one more step, because a site cannot be where a group of modules is.
        stem = f"{wanted}.out" if joined(owner, wanted) in self._groups else wanted
        found, number = stem, 2
        while (site := joined(owner, found)) in self._taken or site in self._groups:
            found, number = f"{stem}_{number}", number + 1
        self._taken.add(site)
        self._groups |= set(_prefixes(site))
        return found

    def wanted(self, component: Component, owner: str, kind: str) -> str:
        """The path of the module, without the first steps of the owner, and the kind if the module does more than this."""
        name = relative(component.path, owner)
        if isinstance(component, (Linear, Convolution, Norm)):
            return name or kind
        return joined(name, kind) if component.path in self._containers or not name else name

    def is_shared(self, component: Component) -> bool:
        """True if several maps have the path of the component."""
        return self._uses.get(component.path, 0) > 1


def joined(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner and name else owner or name


def relative(path: str, owner: str) -> str:
    """The path without the first steps that it has in common with the owner.

    >>> relative("h.0.attn.c_proj", "h.0.attn"), relative("h.0.ln_1", "h.0.attn")
    ('c_proj', 'ln_1')
    """
    steps, outer = path.split("."), owner.split(".")
    common = 0
    while common < min(len(steps), len(outer)) and steps[common] == outer[common]:
        common += 1
    return ".".join(steps[common:])


def tensor_name(parameter: str) -> str:
    """The name of a parameter, as `Network` can have it."""
    *path, last = unwrapped(parameter).split(".")
    return ".".join([*(f"{step}_" if step in _RESERVED else step for step in path), last])


def common_path(paths: Iterable[str]) -> str:
    common: list[str] | None = None
    for path in paths:
        steps = path.split(".")
        if common is None:
            common = steps
        while steps[: len(common)] != common:
            common = common[:-1]
    return ".".join(common or [])


def place(component: Component, graph: Graph) -> str:
    """The path of a component. A sum or product may be written further out than its parts are: it has the path of these."""
    base = graph.dominator(component)
    if base is None or not isinstance(component, (Sum, Product)):
        return component.path
    parts = graph.between(base, component)
    maps = [part for part in parts if isinstance(part, (Linear, Convolution))]
    routers = [part.router_path for part in parts if isinstance(part, Mixture)]
    inner = common_path([*(part.path for part in maps or parts), *routers])
    return inner if inner.startswith(joined(component.path, "")) and len(inner) > len(component.path) else component.path


def blocks(paths: list[str]) -> list[str | None]:
    """For every path the block around it: the numbered child of the container that has the most of them.

    >>> blocks(["wte", "h.0.ln", "h.0", "h.1.ln", "h.1", "norm"])
    [None, 'h.0', 'h.0', 'h.1', 'h.1', None]
    """
    children: dict[str, set[str]] = {}
    for path in paths:
        for found in re.finditer(r"(?:^|\.)(\d+)(?=\.|$)", path):
            children.setdefault(path[: found.start()], set()).add(found[1])
    if not children:
        return [None] * len(paths)
    # Containers that every block has are inside blocks.
    kinds = {name: re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", name) for name in children}
    single = [name for name in children if list(kinds.values()).count(kinds[name]) == 1]
    container = max(single or children, key=lambda name: (len(children[name]), -len(name)))
    pattern = re.compile((re.escape(container) + r"\." if container else "") + r"\d+(?=\.|$)")
    matches = [pattern.match(path) for path in paths]
    return [None if found is None else found[0] for found in matches]


def _prefixes(path: str) -> list[str]:
    steps = path.split(".")
    return [".".join(steps[:count]) for count in range(1, len(steps))]

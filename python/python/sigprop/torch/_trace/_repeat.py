"""Stacks of twins with all blocks of their modules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ._blocks import Cut
from ._capture import unwrapped
from ._components import Refusal, Weight
from ._names import joined, tensor_name
from ._parts import Part, renamed
from ._roles import roles_part
from ._traced import SitePlace, Traced
from ._twin import Twin

# The largest relative difference of numbers of equal blocks, and of distributions whose number of entries is not known.
_TOLERANCE, _WIDE = 1e-4, 0.2


def with_all_blocks(traced: Traced, twin: Twin) -> Traced:
    """The trace of a twin with the blocks that the twin does not have.

    Raises:
        Refusal: If blocks of the twin differ, so that they cannot stand for others.
    """
    for cut in twin.cuts:
        traced = _Repeat(traced, cut).whole()
    return replace(traced, notes=[*twin.notes, *traced.notes], is_whole=not twin.cuts)


@dataclass(frozen=True)
class _Block:
    """A block of the stack."""

    body: list[Part]
    place: int
    site: str


class _Repeat:
    def __init__(self, traced: Traced, cut: Cut) -> None:
        self._traced, self._cut = traced, cut
        streams = traced.stack["streams"]
        self._blocks: dict[int, _Block] = {}
        for stream in streams:
            for place, part in enumerate(stream["body"]):
                site = joined(stream["name"] if len(streams) > 1 else "", part["name"])
                path, _, number = traced.sites[site].path.rpartition(".")
                if path == unwrapped(cut.path) and number.isdigit() and part["name"].rpartition(".")[2] == number:
                    self._blocks[int(number)] = _Block(stream["body"], place, site)

    def whole(self) -> Traced:
        cut, old = self._cut, self._traced
        first = min(cut.equal)
        needed = range(first - 2 * cut.period, first)
        if any(number not in self._blocks for number in needed):
            text = f"parts of {cut.path or 'the module'} that are no blocks of the stack, so that they cannot stand for others"
            raise Refusal(f"{text}; expected blocks of one stream")
        for number in needed[cut.period :]:
            self._refuse_different(number - cut.period, number)
        weights, roles, sites = dict(old.weights), dict(old.roles), dict[str, SitePlace]()
        copies: list[Part] = []
        inside: dict[str, SitePlace] = {}
        for number, equal in cut.equal.items():
            block, rename = self._blocks[equal], self._renaming(equal, number)
            part = renamed(block.body[block.place], rename)
            copies.append({**part, "name": part["name"][: -len(str(equal))] + str(number)})
            weights |= {rename(name): _weight(weight, rename) for name, weight in old.weights.items() if rename(name) != name}
            roles |= {rename(name): replace(role, block=number) for name, role in old.roles.items() if rename(name) != name}
            for site, place in old.sites.items():
                if site == block.site or site.startswith(f"{block.site}."):
                    inside[rename(site)] = SitePlace(rename(place.path), place.code)
        last = self._blocks[first - 1]
        for site, place in old.sites.items():
            sites[site] = place
            if site == last.site:
                sites |= inside
        stack = {**old.stack, "streams": [self._with(stream, copies, last) for stream in old.stack["streams"]]}
        stack["roles"] = roles_part(roles)
        return replace(old, stack=stack, weights=weights, roles=roles, sites=sites)

    def _with(self, stream: Part, copies: list[Part], last: _Block) -> Part:
        body = stream["body"]
        if body is not last.body:
            return stream
        return {**stream, "body": [*body[: last.place + 1], *copies, *body[last.place + 1 :]]}

    def _renaming(self, equal: int, number: int) -> Callable[[str], str]:
        """Replaces the number of a block in the names of its sites, tensors and parameters."""
        path, site = joined(self._cut.path, str(equal)), self._blocks[equal].site
        names = {path, unwrapped(path), tensor_name(f"{path}.weight")[: -len(".weight")], site}
        pattern = re.compile(rf"(?<![^+])({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?=\.|$)")
        return lambda text: pattern.sub(lambda found: found[1][: -len(str(equal))] + str(number), text)

    def _refuse_different(self, one: int, other: int) -> None:
        first, second = (self._blocks[number].body[self._blocks[number].place] for number in (one, other))
        different = self._difference(first, second, _TOLERANCE)
        if different is not None:
            text = f"blocks {one} and {other} of {self._cut.path or 'the module'}, of which others are copies, differ: {different}"
            raise Refusal(f"{text}; expected equal ones, or an initialised module that fits in memory")

    def _difference(self, one: Any, other: Any, tolerance: float) -> str | None:
        """The first difference of two parts of a stack beyond names, in words."""
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            found = (self._difference(x, y, tolerance) for x, y in zip(one, other, strict=True))
            return next((each for each in found if each is not None), None)
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            if "init" in one:
                tolerance = 6.0 / math.sqrt(self._traced.weights[one["name"]].value.numel()) + _TOLERANCE
            for name in (each for each in one if each != "name"):
                # Biases of norms have no names.
                wide = _WIDE if name == "bias" and "eps" in one else tolerance
                different = self._difference(one[name], other[name], wide)
                if different is not None:
                    return different if ":" in different else f"{name}: {different}"
            return None
        if isinstance(one, float) and isinstance(other, float):
            return None if math.isclose(one, other, rel_tol=tolerance) else f"{one:.4g} and {other:.4g}"
        return None if one == other else f"{one} and {other}"


def _weight(weight: Weight, rename: Callable[[str], str]) -> Weight:
    origin = weight.origin
    return Weight(weight.value, rename(weight.name), origin and replace(origin, parameter=rename(origin.parameter)))

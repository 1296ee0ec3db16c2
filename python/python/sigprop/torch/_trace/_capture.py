"""Captures the graph of operations of a live module, by torch.export."""

from __future__ import annotations

import inspect
import linecache
import logging
import operator
import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch import config as functorch_config
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.torch_version import TorchVersion
from torch.utils import _pytree as pytree

from ._components import Refusal

# Older ones do not record slices of module lists.
_OLDEST = "2.6"
# Token ids are cut to this length at most, because index tensors grow with tokens × features.
_LONGEST = 16
LOW_PRECISION = (torch.bfloat16, torch.float16)


@dataclass(eq=False)
class Captured:
    """The operations of a module on an example input."""

    graph_module: fx.GraphModule
    nodes: list[fx.Node]
    # Example inputs by placeholder: tensors, numbers, None.
    inputs: dict[fx.Node, Any]
    # Names in `state` by placeholder.
    names: dict[fx.Node, str]
    # Parameters, buffers and other tensors of the module.
    state: dict[str, Tensor]
    # The names that belong to parameters. Of tied ones, all have an entry in `state` and `canonical` maps them to the first.
    parameters: frozenset[str]
    canonical: dict[str, str]
    # Nodes that the module returns, in order.
    outputs: list[fx.Node]
    # Facts about the example input that the graph depends on.
    notes: list[str]
    # The structure of (args, kwargs), whose leaves are the inputs.
    spec: pytree.TreeSpec

    def arguments(self, state: Mapping[str, Tensor] | None = None) -> list[Any]:
        """The arguments of the graph module for the example input, with the tensors of `state` if it has them.

        Buffers are copies, because BatchNorm writes to them.
        """
        copies = {name: value.clone() for name, value in self.state.items() if name not in self.parameters}
        found = {**self.state, **copies, **(state or {})}
        placeholders = [node for node in self.nodes if node.op == "placeholder"]
        return [found[self.names[node]] if node in self.names else self.inputs[node] for node in placeholders]

    def leaves(self) -> dict[str, Tensor]:
        """The state with parameters that require gradients, tied ones once."""
        once = {name: self.state[name].detach().requires_grad_() for name in set(self.canonical[name] for name in self.parameters)}
        return {name: once.get(self.canonical[name], value) for name, value in self.state.items()}

    def path(self, node: fx.Node) -> str:
        """The path of the module that a node belongs to."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        return unwrapped(re.sub(r"@\d+$", "", str(stack[-1][0]))) if stack else ""

    def code(self, node: fx.Node) -> str:
        """File, line and text of the code of a node."""
        frames = re.findall(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)', node.meta.get("stack_trace") or "")
        outside = [frame for frame in frames if "/site-packages/torch/" not in frame[0]] or frames
        return _shown(*outside[-1]) if outside else ""


def unwrapped(name: str) -> str:
    """The path of a module or the name of a parameter without the steps of wrappers.

    >>> unwrapped("layers.0._orig_mod.attention.weight")
    'layers.0.attention.weight'
    """
    return ".".join(step for step in name.split(".") if step not in ("_orig_mod", "_checkpoint_wrapped_module"))


def capture(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    """Captures the graph of `module(*args, **kwargs)`, a module on the CPU in float32. It is as before afterwards.

    Raises:
        Refusal: If torch.export cannot capture it.
    """
    if TorchVersion(torch.__version__) < _OLDEST:
        raise Refusal(f"torch {torch.__version__}, whose torch.export does not record all modules; expected {_OLDEST} or newer")
    given = dict(kwargs)
    if "use_cache" in inspect.signature(module.forward).parameters:
        given.setdefault("use_cache", False)
    args, given = pytree.tree_map_only(Tensor, _on_cpu, (args, given))
    short = _shortened(module, args, given)
    if short is not None:
        try:
            return _captured(module, *short)
        except Refusal:
            # The length is fixed in the code.
            pass
    return _captured(module, args, given)


def _on_cpu(given: Tensor) -> Tensor:
    if given.is_meta:
        raise Refusal("arguments on the meta device, without values; expected tensors with values")
    given = given.detach().cpu()
    return given.float() if given.is_floating_point() else given


def _shortened(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Arguments with few tokens, whose number is no other size of the module. None if the given ones are so already."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    lengths = list(dict.fromkeys(leaf.shape[-1] for leaf in tensors if is_ids(leaf)))
    sizes = {size for parameter in module.parameters() for size in parameter.shape}
    free = [length for length in (13, 11, 14, 15, 10, 9, 12, 7) if length not in sizes]
    new = {length: free.pop(0) for length in lengths if length > _LONGEST and free}
    only_ids = all(is_ids(leaf) for leaf in tensors)
    if not new and not (only_ids and any(len(leaf) != 2 for leaf in tensors)):
        return None

    def shorten(leaf: Tensor) -> Tensor:
        if not is_ids(leaf):
            return leaf
        leaf = leaf[:, : new.get(leaf.shape[1], leaf.shape[1])]
        if not only_ids:
            return leaf
        if len(leaf) == 1 and len(tensors) > 1 and torch.equal(leaf[0], torch.arange(leaf.shape[1])):
            # Positions.
            return leaf.expand(2, -1)
        return torch.cat([leaf, leaf.roll(1, -1)]) if len(leaf) == 1 else leaf[:2]

    return pytree.tree_map_only(Tensor, shorten, (args, kwargs))  # type: ignore[no-any-return]


def is_ids(given: Tensor) -> bool:
    return given.dim() == 2 and not given.is_floating_point()


def _captured(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Captured:
    fast, notes = torch.backends.mha.get_fastpath_enabled(), []
    torch.backends.mha.set_fastpath_enabled(False)
    # Older versions of torch refuse compiled parts without this.
    may_have_compiled_parts = torch._dynamo.config.patch(error_on_nested_fx_trace=False)
    try:
        with torch.no_grad(), _caches_as_buffers(module), may_have_compiled_parts, _quiet():
            try:
                program = torch.export.export(module, args, kwargs, strict=False)
            except GuardOnDataDependentSymNode as error:
                path, code = _raised_at(error, module)
                notes.append(f"{path}: decides by values of the input, and is read as for the given one [{code}]")
                with functorch_config.patch(fake_tensor_propagate_real_tensors=True):
                    program = torch.export.export(module, args, kwargs, strict=False)
            if any(_writes(node) for node in program.graph.nodes):
                program = program.run_decompositions({})
                _merge_views(program.graph)
                _restore_batch_norms(program.graph)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        text = f"code that torch.export cannot capture ({reason}); expected tensor operations of fixed shapes"
        raise Refusal(text, *_raised_at(error, module)) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return _of_program(program, *pytree.tree_flatten((args, kwargs)), notes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch from printing the whole graph where it cannot go on."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logger.disabled = was_disabled


def _merge_views(graph: fx.Graph) -> None:
    """Makes equal views one, of which decompositions have one per use."""
    views: dict[str, fx.Node] = {}
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
            view = views.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
            if view is not node:
                node.replace_all_uses_with(view)
                graph.erase_node(node)


def _restore_batch_norms(graph: fx.Graph) -> None:
    """Makes the output of a BatchNorm in training one operation; decompositions return it with the new running moments."""
    for norm in graph.find_nodes(op="call_function", target=torch.ops.aten._native_batch_norm_legit_functional.default):
        for output in [user for user in norm.users if user.args[1] == 0]:
            with graph.inserting_before(output):
                whole = graph.call_function(torch.ops.aten.batch_norm.default, (*norm.args, False))
            whole.meta = dict(output.meta)
            output.replace_all_uses_with(whole)
            graph.erase_node(output)


def _raised_at(error: Exception, module: nn.Module) -> tuple[str, str]:
    """The path of the module whose code raised an error, and file, line and text of the code."""
    paths = {id(inner): path for path, inner in module.named_modules()}
    path, code = "", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        is_library = file.startswith(sysconfig.get_path("stdlib")) and "/site-packages/" not in file
        if not is_library and not any(part in file for part in ("/site-packages/torch/", "/sigprop/", "<")):
            path = paths.get(id(frame.f_locals.get("self")), path)
            code = _shown(file, line, linecache.getline(file, line))
    return path or "(root)", code


def _shown(file: str, line: int | str, text: str) -> str:
    return f"{file.split('/site-packages/')[-1]}:{line}: {text.strip()}"


def _writes(node: fx.Node) -> bool:
    """True for operations in place, after which a value is another than its operation gave, but not for counters in buffers."""
    value = node.meta.get("val")
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable or not isinstance(value, Tensor):
        return False
    written = node.args[0]
    return value.is_floating_point() or not isinstance(written, fx.Node) or written.op != "placeholder"


@contextmanager
def _caches_as_buffers(module: nn.Module) -> Iterator[None]:
    """Makes tensors that are plain attributes of modules buffers for a while, so that code may write to them."""
    moved: list[tuple[nn.Module, str, Tensor]] = []
    for inner in module.modules():
        for name, value in list(vars(inner).items()):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                delattr(inner, name)
                inner.register_buffer(name, value, persistent=False)
                moved.append((inner, name, value))
    try:
        yield
    finally:
        for inner, name, value in moved:
            delattr(inner, name)
            inner._non_persistent_buffers_set.discard(name)
            setattr(inner, name, value)


def _of_program(
    program: torch.export.ExportedProgram, leaves: list[Any], arguments: pytree.TreeSpec, notes: list[str]
) -> Captured:
    graph_module, signature = program.graph_module, program.graph_signature
    _inline(graph_module)
    found = {**program.state_dict, **program.constants}
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    given = iter(leaves)
    inputs: dict[fx.Node, Any] = {}
    names: dict[fx.Node, str] = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            spec = specs[node.name]
            if spec.kind.name == "USER_INPUT":
                inputs[node] = next(given)
            else:
                names[node] = str(spec.target)
    notes += _vary(inputs)
    state = {name: value.detach() for name, value in found.items() if isinstance(value, Tensor)}
    parameters = frozenset(name for name in signature.parameters if name in state)
    canonical: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, value in state.items():
        place = (value.data_ptr(), value.shape, value.stride()) if name in parameters and value.numel() else name
        canonical[name] = first.setdefault(place, name)
    nodes = list(graph_module.graph.nodes)
    returned = {spec.arg.name for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"}
    outputs = [node for node in pytree.tree_leaves(list(nodes[-1].args)) if isinstance(node, fx.Node) and node.name in returned]
    return Captured(graph_module, nodes, inputs, names, state, parameters, canonical, outputs, notes, arguments)


def _vary(inputs: dict[fx.Node, Any]) -> list[str]:
    """Gives the first input that chooses rows of tables different ids if no input has any, so that it does not look like a mask.

    Returns notes on the inputs that choose one row, which is a constant then.
    """
    given = [node for node, value in inputs.items() if isinstance(value, Tensor) and not value.is_floating_point()]
    chosen = [(node, table) for node in given if (table := table_of(node)) is not None]
    tables = [(node, table) for node, table in chosen if is_ids(inputs[node])]
    if tables and all(bool((inputs[node] == inputs[node][0, 0]).all()) for node, _ in tables):
        node, table = tables[0]
        count = inputs[node].numel()
        inputs[node] = (7919 * torch.arange(count) % table.meta["val"].shape[0]).reshape(inputs[node].shape)
    fixed = [node.name for node, _ in chosen if bool((inputs[node] == inputs[node].flatten()[:1]).all())]
    return [f"{name}: the same id everywhere, so the row that it chooses is a constant" for name in fixed]


def table_of(node: fx.Node) -> fx.Node | None:
    """The table of which a node chooses rows, as it is or reshaped."""
    for user in node.users:
        name = getattr(user.target, "__name__", "")
        if name.startswith("embedding.") and isinstance(user.args[0], fx.Node) and user.args[1] is node:
            return user.args[0]
        found = table_of(user) if name.startswith(("view.", "reshape.", "alias.", "clone.", "slice.")) else None
        if found is not None:
            return found
    return None


def _inline(graph_module: fx.GraphModule) -> None:
    """Replaces regions of autocast and set_grad by their operations, and casts to low precision by casts to float32.

    Decompositions write dropout as an operation with two results. It becomes the plain one again.
    """
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not any(isinstance(arg, fx.Node) and _is_region(graph_module, arg) for arg in node.args):
            continue
        place = next(index for index, arg in enumerate(node.args) if isinstance(arg, fx.Node) and _is_region(graph_module, arg))
        region = getattr(graph_module, str(node.args[place].target))
        _inline(region)
        inner = [each for each in region.graph.nodes if each.op == "placeholder"]
        mapped: dict[fx.Node, Any] = dict(zip(inner, node.args[place + 1 :], strict=False))
        with graph.inserting_before(node):
            results = graph.graph_copy(region.graph, mapped)
        for user in list(node.users):
            if user.target is operator.getitem and isinstance(results, (tuple, list)):
                user.replace_all_uses_with(results[user.args[1]])
                graph.erase_node(user)
        if node.users:
            node.replace_all_uses_with(results)
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.native_dropout.default):
        with graph.inserting_before(node):
            dropped = graph.call_function(torch.ops.aten.dropout.default, node.args)
        dropped.meta = {**node.meta, "val": node.meta["val"][0]}
        for user in list(node.users):
            user.replace_all_uses_with(dropped)
            graph.erase_node(user)
        graph.erase_node(node)
    for node in graph.nodes:
        node.args = pytree.tree_map(_whole_precision, node.args)
        node.kwargs = pytree.tree_map(_whole_precision, node.kwargs)
    graph_module.recompile()


def _is_region(graph_module: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "get_attr" and isinstance(getattr(graph_module, str(node.target), None), fx.GraphModule)


def _whole_precision(argument: Any) -> Any:
    return torch.float32 if isinstance(argument, torch.dtype) and argument in LOW_PRECISION else argument

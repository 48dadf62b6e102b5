"""The graph of a module for TensorBoard's graph tab, found by tracing one call of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from runhooks.events.format import proto
from runhooks.summary.graph_def import (
    encode_graph_def,
    encode_node,
    shapes_attribute,
    text_attribute,
)

_GET_ATTRIBUTE = "prim::GetAttr"
_CLASS = "ClassType"
_ROOT = "__module"  # what traces call the module itself
_IO = "IO Node"
_DEVICE = "/device:CPU:0"


class ModuleGraph(NamedTuple):
    """A ``GraphDef``, and a ``RunMetadata`` that names a device, as bytes."""

    graph: bytes
    run_metadata: bytes


class _Operation(NamedTuple):
    """An operation: its node in the trace, and the place of its module, such as ``Net/fc``."""

    node: Any
    scope: str


def module_graph(
    module: torch.nn.Module, inputs: Any, verbose: bool = False, strict: bool = True
) -> ModuleGraph:
    """Return the graph of ``module``, traced in evaluation mode with ``inputs``.

    Operations have the names of torch's own ``add_graph``: the modules that they are in, and what
    the trace calls them.

    Args:
        module: A module, or a function that is traced or scripted.
        inputs: A tensor, or a tuple of what to call it with.
        verbose: Whether to print the trace.
        strict: As that of ``torch.jit.trace``.

    Raises:
        RuntimeError: It cannot be traced.
    """
    with _evaluating(module), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.trace", DeprecationWarning)
        trace = torch.jit.trace(module, inputs, strict=strict)
        graph = trace.graph  # not its inlined_graph, which numbers the operations otherwise
        torch._C._jit_pass_inline(graph)
    if verbose:
        print(graph)  # noqa: T201 (what verbose is for)
    device = proto.bytes_field(1, _DEVICE.encode())
    run_metadata = proto.bytes_field(1, proto.bytes_field(1, device))
    return ModuleGraph(encode_graph_def(_nodes(graph, trace)), run_metadata)


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    if not isinstance(module, torch.nn.Module):
        yield
        return
    was_training = module.training
    module.train(False)
    try:
        yield
    finally:
        module.train(was_training)


def _nodes(graph: Any, trace: Any) -> Iterator[bytes]:
    inputs = [value for value in graph.inputs() if value.uses() and not _is_class(value)]
    operations = list(_operations(graph, trace))
    names = _names(inputs, operations)
    for value in inputs:
        yield encode_node(names[value.debugName()], _IO, (), _attributes("", _io_shape(value)))
    for number, value in enumerate(graph.outputs(), 1):
        attributes = _attributes("", _io_shape(value))
        yield encode_node(f"output/output.{number}", _IO, [names[value.debugName()]], attributes)
    for node, _ in operations:
        sources = [names[value.debugName()] for value in node.inputs()]
        for value in node.outputs():
            shape = value.type().sizes() if value.isCompleteTensor() else None
            attributes = _attributes(_parameters(node), shape)
            yield encode_node(names[value.debugName()], node.kind(), sources, attributes)


def _operations(graph: Any, trace: Any) -> Iterator[_Operation]:
    modules = {
        path: f"{_class_name(part)}[{path.split('.')[-1]}]"
        for path, part in trace.named_modules(prefix=_ROOT)
    }
    root = _class_name(trace)
    paths: dict[str, str] = {}  # of attributes, by what the trace calls them
    for node in graph.nodes():
        path = node.scopeName()
        if node.kind() == _GET_ATTRIBUTE:
            path = _attribute_path(node, paths)
            paths[node.output().debugName()] = path
            if _is_class(node.output()):
                continue
        steps = [modules.get(step, step.split(".")[-1]) for step in path.split("/")]
        yield _Operation(node, "/".join([root, *steps]) if any(steps) else root)


def _attribute_path(node: Any, paths: dict[str, str]) -> str:
    name, owner = node.s("name"), node.input()
    if owner.node().kind() != _GET_ATTRIBUTE:
        return f"{_ROOT}.{name}"
    path = paths[owner.debugName()]
    return f"{path}/{path.split('/')[-1]}.{name}"


def _names(inputs: Sequence[Any], operations: Sequence[_Operation]) -> dict[str, str]:
    """Return the name of each value; one that nobody shown computes is beside its last user."""
    names = {
        value.debugName(): f"{scope}/{value.debugName()}"
        for node, scope in operations
        for value in node.inputs()
    }
    for value in inputs:
        names[value.debugName()] = f"input/{value.debugName()}"
    for node, scope in operations:
        for value in node.outputs():
            names[value.debugName()] = f"{scope}/{value.debugName()}"
    return names


def _class_name(module: Any) -> str:
    return str(getattr(module, "original_name", "Module"))


def _is_class(value: Any) -> bool:
    return bool(value.type().kind() == _CLASS)


def _io_shape(value: Any) -> Sequence[int] | None:
    try:
        shape: Sequence[int] | None = value.type().sizes()
    except RuntimeError:  # not a tensor
        return [1]
    return shape


def _parameters(node: Any) -> str:
    """Return the constants of ``node`` as text."""
    constants = {key: getattr(node, node.kindOf(key))(key) for key in node.attributeNames()}
    return str(constants).replace("'", " ")


def _attributes(parameters: str, shape: Sequence[int] | None) -> dict[str, bytes]:
    found = {"attr": text_attribute(parameters)}
    if shape is not None:
        found["_output_shapes"] = shapes_attribute([shape])
    return found

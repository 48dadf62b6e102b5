"""``straight_line``: the operations of a body as one function of Python, for runs made again.

Evaluating a graph operation by operation finds out in each run what never changes: what each
function is called with, and what the new value of a variable must look like. Here it is written
down once, as the source of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runhooks.engines.eager import EagerEngine
from runhooks.graph import nest
from runhooks.graph.engine import FlatRun
from runhooks.graph.evaluate import note_operation, outputs_of
from runhooks.graph.plan import Body
from runhooks.graph.tensor import CAPTURES, Operation, Tensor, Variable


class _OtherFormError(Exception):
    """A new value is not of the form of the old one, or has to be converted to it."""


def straight_line(
    engine: EagerEngine,
    body: Body,
    variables: Mapping[Variable, Any],
    note: Callable[[Exception], None],
) -> FlatRun | None:
    """Return ``body`` as one function.

    Args:
        engine: The engine, which takes new values that are not plain arrays of the same form.
        body: What to compute.
        variables: The values of the variables.
        note: Called with an error out of a function of the graph.

    Returns:
        None if there are random keys, values captured inside of objects, or variables with values
        other than dicts, lists and tuples of arrays.
    """
    read = (*body.assigned, *body.kept)
    made = {tensor for op in body.operations for tensor in op.outputs}
    if any(op.type == "RandomKey" for op in (*body.operations, *(t.op for t in body.given))):
        return None
    if any(op.effect in CAPTURES for op in body.operations):
        return None
    if not made.isdisjoint(body.given) or not all(_is_plain(variables[v]) for v in read):
        return None
    return FlatRun(_Source(engine, body, variables, note).function())


class _Source:
    """The source of the function, and the objects that its names stand for."""

    def __init__(
        self,
        engine: EagerEngine,
        body: Body,
        variables: Mapping[Variable, Any],
        note: Callable[[Exception], None],
    ) -> None:
        self._engine = engine
        self._body = body
        self._variables = variables
        self._note = note
        self._names: dict[str, Any] = {}
        self._tensors: dict[Tensor, str] = {}
        self._latest: dict[Variable, str] = {}

    def function(self) -> Callable[..., list[Any]]:
        body = self._body
        taken = (*body.assigned, *body.kept, *body.given)
        self._tensors = {tensor: f"v{i}" for i, tensor in enumerate(taken)}
        parameters = ", ".join(self._tensors.values())
        lines = [line for at, op in enumerate(body.operations) for line in self._lines(at, op)]
        read = {t for op in body.operations for t in op.inputs}.union(body.fetches)
        shared = {op.assigns for op in body.operations if not read.isdisjoint(op.outputs)}
        new = [
            self._own(v, self._latest[v]) if v in shared else self._latest[v] for v in body.assigned
        ]
        fetched = "".join(f"{self._own(t, self._tensors[t])}, " for t in body.fetches)
        source = [
            f"def step({parameters}):",
            "    at = 0",
            "    try:",
            *(f"        {line}" for line in [*lines, "pass"]),
            "    except Exception as error:",
            "        note(error, at)",
            "        raise",
            f"    return [{', '.join([*new, f'({fetched})'])}]",
        ]
        self._names["note"] = self._noted
        exec("\n".join(source), self._names)
        step: Callable[..., list[Any]] = self._names["step"]
        return step

    def _noted(self, error: Exception, at: int) -> None:
        note_operation(error, self._body.operations[at])
        self._note(error)

    def _lines(self, at: int, op: Operation) -> list[str]:
        """Return the statements that compute ``op``."""
        args = ", ".join(self._args(op))
        if op.assigns is None:
            outputs = [self._new_name(tensor) for tensor in op.outputs]
            call = f"{self._name(op.fn)}({args})"
            return [f"at = {at}", *self._taken_apart(op, call, outputs)]
        old = self._tensors[op.assigns]
        latest, name = self._latest.get(op.assigns, old), op.assigns.op.name
        new = args if op.type == "Assign" else f"{self._name(op.fn)}({latest}, {args})"
        conform = self._name(_conformer(self._engine, name, self._variables[op.assigns]))
        self._latest[op.assigns] = self._new_name(op.outputs[0])
        return [f"at = {at}", f"{self._latest[op.assigns]} = {conform}({old}, {new})"]

    def _taken_apart(self, op: Operation, call: str, outputs: list[str]) -> list[str]:
        if len(outputs) == 1:
            return [f"{outputs[0]} = {call}"]
        divide, this = self._name(outputs_of), self._name(op)
        result = f"{divide}({this}, {call})"
        return [f"{', '.join(outputs)} = {result}" if outputs else result]

    def _args(self, op: Operation) -> list[str]:
        """Return the arguments of ``op``, of which an assignment has one."""
        if not any(list(nest.tensors(arg)) for arg in op.args if not isinstance(arg, Tensor)):
            return [self._arg(arg) for arg in op.args]
        inputs = "".join(f"{self._name(t)}: {self._arg(t)}, " for t in op.inputs)
        return [f"*{self._name(op.read_args)}({{{inputs}}})"]

    def _arg(self, arg: Any) -> str:
        is_tensor = isinstance(arg, Tensor)
        return self._own(arg, self._tensors[arg]) if is_tensor else self._name(arg)

    def _own(self, tensor: Tensor, name: str) -> str:
        """Return the value of a variable in containers of its own; of anything else, as it is."""
        copy: Callable[[Any], Any] = _same
        if isinstance(tensor, Variable):
            is_fed = tensor in self._body.given  # with a value of any form
            copy = self._engine.own if is_fed else _copier(self._variables[tensor])
        return name if copy is _same else f"{self._name(copy)}({name})"

    def _new_name(self, tensor: Tensor) -> str:
        return self._tensors.setdefault(tensor, f"v{len(self._tensors)}")

    def _name(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    if type(value) is list or type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) is np.ndarray or isinstance(value, np.generic)


def _copier(value: Any) -> Callable[[Any], Any]:
    """Return a function that copies the containers of values like ``value``, not the arrays."""
    if type(value) is dict:
        copiers = {key: _copier(part) for key, part in value.items()}
        if all(copy is _same for copy in copiers.values()):
            return dict.copy
        return lambda value: {key: copy(value[key]) for key, copy in copiers.items()}
    if type(value) is list or type(value) is tuple:
        kind, in_order = type(value), [_copier(part) for part in value]
        return lambda value: kind([copy(it) for copy, it in zip(in_order, value, strict=True)])
    return _same


def _same(value: Any) -> Any:
    return value


def _conformer(engine: EagerEngine, name: str, value: Any) -> Callable[[Any, Any], Any]:
    """Return a function as ``engine.conform`` for the old and new values of one variable."""
    fast = _fast_conformer(value)

    def conform(old: Any, new: Any) -> Any:
        try:
            return fast(old, new)
        except (_OtherFormError, KeyError):
            return engine.conform(name, old, new)

    return conform


def _fast_conformer(value: Any) -> Callable[[Any, Any], Any]:
    if type(value) is dict:
        parts = {key: _fast_conformer(part) for key, part in value.items()}

        def conform_dict(old: Any, new: Any) -> Any:
            if type(new) is not dict or len(new) != len(parts):
                raise _OtherFormError
            return {key: conform(old[key], new[key]) for key, conform in parts.items()}

        return conform_dict
    if type(value) is list or type(value) is tuple:
        kind, in_order = type(value), [_fast_conformer(part) for part in value]

        def conform_items(old: Any, new: Any) -> Any:
            if type(new) is not kind or len(new) != len(in_order):
                raise _OtherFormError
            return kind([it(*values) for it, *values in zip(in_order, old, new, strict=True)])

        return conform_items
    return _conform_array if type(value) is np.ndarray else _conform_number


def _conform_array(old: Any, new: Any) -> Any:
    if type(new) is not np.ndarray or new.dtype != old.dtype or new.shape != old.shape:
        raise _OtherFormError
    if new is old:
        return old
    # A copy: whoever has made it may go on to change it.
    copy = np.array(new)
    copy.setflags(write=False)
    return copy


def _conform_number(old: Any, new: Any) -> Any:
    if type(new) is not type(old) or new.dtype != old.dtype:
        raise _OtherFormError
    return new

"""``straight_line``: the operations of a body as one function of Python, for runs made again.

Evaluating a graph operation by operation finds out in each run what never changes: what each
function is called with, and what the new value of a variable must look like. Here it is written
down once, as the source of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from runhooks.engines.eager import EagerEngine
from runhooks.engines.numpy.conforming import IN_VARIABLE, OtherFormError, conformer, references
from runhooks.graph import nest
from runhooks.graph.engine import FlatRun
from runhooks.graph.evaluate import note_operation, outputs_of
from runhooks.graph.plan import Body
from runhooks.graph.tensor import CAPTURES, Operation, Tensor, Variable


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
        self._names["references"], self._names["OtherFormError"] = references, OtherFormError
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
        conform = self._name(conformer(self._variables[op.assigns]))
        convert = self._name(partial(self._engine.conform, name))
        lines = [f"at = {at}"]
        if op.type == "Assign":
            new = args
            can_be_alone = self._is_read_once(op.args[0])
        else:
            new = "new"
            can_be_alone = True
            lines += [f"new = {self._name(op.fn)}({latest}, {args})"]
        assigned = self._latest[op.assigns] = self._new_name(op.outputs[0])
        return [
            *lines,
            # Not among the arguments of the call below, each of which is a reference.
            f"alone = references({new}) == {IN_VARIABLE}" if can_be_alone else "alone = False",
            "try:",
            f"    {assigned} = {conform}({old}, {new}, alone)",
            "except OtherFormError:",
            f"    {assigned} = {convert}({old}, {new})",
        ]

    def _taken_apart(self, op: Operation, call: str, outputs: list[str]) -> list[str]:
        if len(outputs) == 1:
            return [f"{outputs[0]} = {call}"]
        divide, this = self._name(outputs_of), self._name(op)
        result = f"{divide}({this}, {call})"
        return [f"{', '.join(outputs)} = {result}" if outputs else result]

    def _is_read_once(self, value: Any) -> bool:
        """Return whether ``value`` is made here, for one operation alone."""
        reads = [t for op in self._body.operations for t in nest.leaves(op.args) if t is value]
        made = [op for op in self._body.operations if value in op.outputs and op.assigns is None]
        return len(reads) == len(made) == 1 and value not in self._body.fetches

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

"""The python engine: the user's functions are called one by one, over NumPy or anything else.

Whoever has made an array may go on to change it, so that a variable takes a copy. It takes the
array itself if nobody else has it, as where a function returns what it has just computed. Python
counts the references to an object; a view, or a buffer that is exported, is one to its array.

Evaluating a graph operation by operation finds out in each run what never changes: what each
function is called with, and what the new value of a variable must look like. Here it is written
down once, as the source of a function.

The arrays of a variable are its own, and read-only: a change in place would break the promise that
the variables of a run change all together or not at all. A function returns new ones.
"""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from runhooks.arrays import library_of
from runhooks.arrays.numpy import ARRAYS
from runhooks.engines.conform import as_numbers, is_inexact
from runhooks.engines.eager import EagerEngine, EagerRun, Evaluate
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import Compiled, FlatRun
from runhooks.graph.evaluate import note_operation, outputs_of
from runhooks.graph.nodes import CAPTURES, Operation, Tensor, Variable
from runhooks.graph.plan import Body


def start_python_profile(folder: Path, step: int) -> Callable[[], Path]:
    """Start a profile as ``Framework.start_profile``; file: ``profile-<step>.pstats``.

    It holds the calls of the thread that runs the session. Other threads are not measured: waiting
    for them shows as time of the call that waits.
    """
    if sys.getprofile() is not None:
        raise RuntimeError("another Python profiler is running in this thread")
    profile = cProfile.Profile()
    try:
        profile.enable()
    except ValueError as error:  # Python 3.12 and later
        raise RuntimeError("another Python profiler is running") from error

    def stop() -> Path:
        profile.disable()
        path = folder / f"profile-{step}.pstats"
        profile.dump_stats(path)
        return path

    return stop


#: ``conform(old, new, alone)`` returns ``new`` as the variable holds it. ``alone``: whether nobody
#: has ``new`` but its caller.
Conform = Callable[[Any, Any, bool], Any]


class OtherFormError(Exception):
    """A new value is not of the form of the old one, or has to be converted to it."""


def conformer(value: Any) -> Conform:
    """Return the function for a variable that holds ``value``.

    It raises ``OtherFormError`` where the engine is to convert a value, or to refuse it.

    Args:
        value: A plain array, a number of NumPy, or dicts, lists and tuples of these.
    """
    if type(value) is dict:
        return _container_conformer(dict, value)
    if type(value) is list or type(value) is tuple:
        return _container_conformer(type(value), dict(enumerate(value)))
    return _array_conformer(value) if type(value) is ndarray else _number_conformer(value)


def _array_conformer(value: ndarray[Any, Any]) -> Conform:
    dtype, shape = value.dtype, value.shape

    def conform(old: Any, new: Any, alone: bool) -> Any:
        if new is old:
            return old
        if type(new) is not ndarray or new.dtype != dtype or new.shape != shape:
            raise OtherFormError
        if not alone or not new.flags.owndata:
            new = np.array(new)
        new.setflags(False)
        return new

    return conform


def _number_conformer(value: np.generic) -> Conform:
    kind, dtype = type(value), value.dtype

    def conform(old: Any, new: Any, alone: bool) -> Any:
        if type(new) is not kind or new.dtype != dtype:
            raise OtherFormError
        return new

    return conform


def _container_conformer(kind: type[Any], value: Mapping[Any, Any]) -> Conform:
    parts = [(key, *_form(part), conformer(part)) for key, part in value.items()]

    def conform(old: Any, new: Any, alone: bool) -> Any:
        if type(new) is not kind or len(new) != len(parts):
            raise OtherFormError
        conformed = {}
        try:
            for key, dtype, shape, conform_part in parts:
                part = new[key]
                if dtype is None:
                    is_alone = alone and references(part) == IN_CONTAINER
                    part = conform_part(old[key], part, is_alone)
                elif part is not old[key]:
                    # What the function of an array does: a call for each would show.
                    if type(part) is not ndarray or part.dtype != dtype or part.shape != shape:
                        raise OtherFormError
                    if not alone or references(part) != IN_CONTAINER or not part.flags.owndata:
                        part = np.array(part)
                    part.setflags(False)
                conformed[key] = part
        except KeyError:
            raise OtherFormError from None
        return conformed if kind is dict else kind(conformed.values())

    return conform


def _form(value: Any) -> tuple[Any, Any]:
    return (value.dtype, value.shape) if type(value) is ndarray else (None, None)


def _uncounted(value: object) -> int:
    return -1


def _in_variable() -> int:
    value = object()
    return references(value)


def _in_container() -> int:
    values = {0: object()}
    counts = []
    for key in values:
        value = values[key]
        counts.append(references(value))
    return counts[0]


# Without a global lock, as in free-threaded Python, another thread's references may not show.
_has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()

#: Returns how often an object is referred to, counting the call; -1 where that cannot be told.
references: Callable[[object], int]
references = getattr(sys, "getrefcount", _uncounted) if _has_lock else _uncounted

#: That of a value which nobody has but a function, in a variable; as this Python counts it.
IN_VARIABLE = _in_variable() if references is not _uncounted else 0

#: That of one which it has in a variable and in a container.
IN_CONTAINER = _in_container() if references is not _uncounted else 0


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


class PythonEngine(EagerEngine):
    """Evaluates a graph operation by operation; pytrees are lists, tuples and dicts."""

    name = "python"
    title = "Python"
    arrays = ARRAYS

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        evaluate = super().evaluator(operations)

        def evaluated(*args: Any) -> Any:
            try:
                return evaluate(*args)
            except ValueError as error:
                _note_read_only(error)
                raise

        return evaluated

    def flat_run(
        self, compiled: Compiled, variables: Mapping[Variable, Any], given: Sequence[Any]
    ) -> FlatRun | None:
        if not isinstance(compiled, EagerRun):
            return None
        return straight_line(self, compiled.body, variables, _note_read_only)

    def own(self, value: Any) -> Any:
        # Arrays are read-only; the containers are not.
        return self.map_leaves(lambda leaf: leaf, value)

    def fetched(self, tensor: Tensor, value: Any) -> Any:
        return value

    def constant(self, value: Any) -> Any:
        return value

    def array(self, value: Any) -> Any:
        return np.asarray(value)

    def cast(self, new: Any, old: Any) -> Any:
        return _frozen(np.array(new, old.dtype))

    def initial_leaf(self, name: str, path: str, leaf: Any) -> Any:
        array = as_numbers(name, path, leaf)
        return _frozen(np.array(array, array.dtype.newbyteorder("=")))

    def check_initial_leaf(self, name: str, path: str, leaf: Any) -> None:
        as_numbers(name, path, leaf)

    def sum(self, leaf: Any, delta: Any) -> Any:
        # A Python number keeps the dtype. NumPy 1 would make float64 of it and a single float32,
        # and any NumPy float32 of it and a bfloat16.
        like = type(delta) is int and leaf.dtype.kind in "iu"
        like = like or (type(delta) in (int, float) and is_inexact(leaf.dtype))
        return leaf + (leaf.dtype.type(delta) if like else delta)

    def integer(self, value: int) -> Any:
        return np.int64(value)

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        return _frozen(array.copy())

    def place(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        return _frozen(array)

    def histogram(self, values: Any) -> Any:
        return library_of(values).histogram(values)

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        return start_python_profile(folder, step)


def _note_read_only(error: Exception) -> None:
    if isinstance(error, ValueError) and "read-only" in str(error):
        add_note(
            error,
            "arrays of states and variables are read-only in a step: return new ones "
            "(v = v + dv), or change a copy (v = v.copy())",
        )


def _frozen(array: np.ndarray[Any, Any]) -> Any:
    array.flags.writeable = False
    return array[()] if array.ndim == 0 else array


ENGINE = PythonEngine()

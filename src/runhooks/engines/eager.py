"""``EagerEngine``: the base of engines that call the user's functions one by one."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from runhooks.engines.conform import (
    Form,
    as_numbers,
    by_path,
    check_new_leaf,
    check_structure,
    check_unassigned,
    check_unmasked,
    is_inexact,
    number_as,
)
from runhooks.graph.engine import Compiled, Engine
from runhooks.graph.evaluate import evaluate
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.plan import Body

Evaluate = Callable[[dict[Tensor, Any], Mapping[Variable, Any]], dict[Variable, Any]]

_NUMPY = (np.ndarray, np.generic)


class EagerRun:
    """Computes ``body`` operation by operation."""

    def __init__(self, engine: EagerEngine, body: Body) -> None:
        self.body = body
        self._engine = engine
        self._reads = (*body.assigned, *body.kept)
        self._evaluate = engine.evaluator(body.operations)

    def __call__(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> list[Any]:
        """Return the new values of ``body.assigned``, then the values of ``body.fetches``."""
        engine, body = self._engine, self.body
        values: dict[Tensor, Any] = {v: variables[v] for v in self._reads}
        values.update(zip(body.given, given, strict=True))
        before = {v: variables[v] for v in body.assigned}
        assigned = self._evaluate(values, before)
        check_unassigned(variables, before, before.values())
        # A caller may change what it gets back.
        fetched = [
            engine.own(values[t])
            if isinstance(t, Variable)
            else engine.fetched(t, engine.key_of(t, values[t]))
            for t in body.fetches
        ]
        return [engine.own(assigned[v]) for v in body.assigned] + fetched


class EagerEngine(Engine):
    """Evaluates a graph operation by operation; pytrees: lists, tuples, dicts and dataclasses.

    A subclass names the library whose arrays variables hold, and overrides what the library does
    in its own way. ``examples/engine_mlx.py`` is a whole one:

        class CupyEngine(EagerEngine):
            name = "cupy"
            arrays = CupyArrays()

        runhooks.engines.register_engine("cupy", CupyEngine)

    Functions are called with copies of what variables hold (``arrays.snapshot``), with which they
    may do as they like. Arrays of NumPy that they would be called with, as an input may give them,
    become arrays of the library. What is fetched is a copy too.
    """

    def compile(self, body: Body) -> Compiled:
        return EagerRun(self, body)

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        """Return a function that puts the outputs of ``operations`` into the values it is given.

        It returns the variables' new values.
        """
        return lambda values, variables: evaluate(
            operations, values, variables, self.conform, self.read_args
        )

    def read_args(self, op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
        """Return what the function of ``op`` is called with."""
        return tuple([self.constant(arg) for arg in op.read_args(self.handed(op, values))])

    def handed(self, op: Operation, values: Mapping[Tensor, Any]) -> Mapping[Tensor, Any]:
        """Return ``values`` as the function of ``op`` may have them, which may change them."""
        own: dict[Tensor, Any]
        own = {t: self.own(values[t]) for t in op.inputs if isinstance(t, Variable)}
        keys = {t: self.key_of(t, values[t]) for t in op.inputs if t.op.type == "RandomKey"}
        return {**values, **own, **keys} if own or keys else values

    def own(self, value: Any) -> Any:
        """Return a copy of ``value``; what is done to it does not reach ``value``."""
        if self.arrays.owns(type(value)):
            return self.arrays.snapshot(value)
        return self.map_leaves(self._own_leaf, value)

    def own_key(self, key: Any) -> Any:
        """Return a random key in the state of ``key``; drawing from one leaves the other alone."""
        return copy.deepcopy(key)

    def fetched(self, tensor: Tensor, value: Any) -> Any:
        """Return ``value``, that of ``tensor``, as whoever fetched it is to have it."""
        return self.own(value)

    def array(self, value: Any) -> Any:
        """Return a number, or an array of another library, as an array on the default device."""
        return self.arrays.from_numpy(np.asarray(value))

    def cast(self, new: Any, old: Any) -> Any:
        """Return the array ``new`` with the dtype of ``old``, where ``old`` is."""
        if new.dtype == old.dtype:
            return new
        host = self.arrays.to_numpy(new)
        return self.arrays.from_numpy(host.astype(self.host_form(old)[1]), old)

    def constant(self, value: Any) -> Any:
        """Return ``value`` with arrays of the library in the place of those of NumPy."""
        if isinstance(value, _NUMPY):
            return self.array(value) if value.dtype.kind in "biufcV" else value
        if isinstance(value, dict):
            return {key: self.constant(item) for key, item in value.items()}
        if type(value) is list or type(value) is tuple:
            return type(value)(self.constant(item) for item in value)
        return value

    def initial(self, name: str, value: Any) -> Any:
        leaves = self.leaves(value).items()
        return self.with_leaves(value, [self.initial_leaf(name, *leaf) for leaf in leaves])

    def initial_leaf(self, name: str, path: str, leaf: Any) -> Any:
        """Return a copy of a leaf of a variable's initial value.

        Raises:
            TypeError: If it is not an array or a number.
        """
        if self.arrays.owns(type(leaf)):
            return self.arrays.snapshot(leaf)
        self.check_initial_leaf(name, path, leaf)
        return self.array(leaf)

    def check_initial_leaf(self, name: str, path: str, leaf: Any) -> None:
        if not self.arrays.owns(type(leaf)):
            as_numbers(name, path, leaf)

    def conform(self, name: str, old: Any, new: Any) -> Any:
        old_leaves, new_leaves = self.leaves(old), self.leaves(new)
        check_structure(name, old_leaves, new_leaves)
        conformed = [self._conformed(name, p, it, new_leaves[p]) for p, it in old_leaves.items()]
        return self.with_leaves(old, conformed)

    def sum(self, leaf: Any, delta: Any) -> Any:
        """Return ``leaf + delta``."""
        return leaf + self.constant(delta)

    def add(self, name: str, old: Any, delta: Any) -> Any:
        if _items(old) is None:
            return self.sum(old, delta)
        leaves, deltas = self.leaves(old), self.leaves(delta)
        if "" in deltas:
            deltas = dict.fromkeys(leaves, delta)
        check_structure(name, leaves, deltas)
        return self.with_leaves(old, [self.sum(leaf, deltas[p]) for p, leaf in leaves.items()])

    def wide(self, leaf: Any) -> Any:
        form = self.host_form(leaf)[1]
        if not is_inexact(form) or form.itemsize >= 4:
            return self.arrays.snapshot(leaf)
        return self.arrays.from_numpy(self.arrays.to_numpy(leaf).astype(np.float32))

    def average(self, old: Any, new: Any, weight: Any) -> Any:
        if weight == 1 or not is_inexact(self.host_form(old)[1]):
            return self.cast(new, old)
        # Of the two forms the one that rounds less.
        moved = old + (new - old) * weight if weight < 0.5 else new - (new - old) * (1 - weight)
        return self.cast(moved, old)

    def as_like(self, old: Any, new: Any) -> Any:
        return self.cast(new, old)

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        """Return a ``numpy.random.Generator``, unless a subclass has keys of its own."""
        return np.random.default_rng([seed, stream, int(runs)])

    def leaves(self, value: Any) -> dict[str, Any]:
        return by_path(_walk("", value))

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        return _rebuilt(value, iter(leaves))

    def children(self, value: Any) -> dict[str, Any]:
        return {str(key): item for key, item in _items(value) or ()}

    def map_leaves(self, fn: Callable[[Any], Any], value: Any) -> Any:
        """Return ``value`` with ``fn`` of each leaf in its place, in new containers."""
        return _rebuilt(value, (fn(leaf) for _, leaf in _walk("", value)))

    def _own_leaf(self, leaf: Any) -> Any:
        return self.arrays.snapshot(leaf) if self.arrays.owns(type(leaf)) else leaf

    def key_of(self, tensor: Tensor, value: Any) -> Any:
        """Return ``value``, that of ``tensor``; of a random key, one that is the reader's own."""
        # A generator changes as it is used. What one reader draws must not depend on whether
        # another, such as a hook on its due step, has drawn before.
        return self.own_key(value) if tensor.op.type == "RandomKey" else value

    def _conformed(self, name: str, path: str, old: Any, new: Any) -> Any:
        is_number = isinstance(new, int | float) and not isinstance(new, np.generic)
        if is_number and not old.shape:
            number = number_as(name, path, new, self.host_form(old)[1])
            return self.from_host(old, np.asarray(number))
        check_unmasked(name, path, new)
        if not self.arrays.owns(type(new)):
            new = self.array(new)
        if old.shape != new.shape or old.dtype != new.dtype:
            check_new_leaf(name, path, self._form(old), self._form(new))
        return self.cast(new, old)

    def _form(self, array: Any) -> Form:
        try:
            return self.host_form(array)
        except (TypeError, ImportError):  # NumPy has no such dtype
            return tuple(array.shape), array.dtype


def _items(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of a container with their keys; None of anything else."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    if isinstance(value, list | tuple):
        return enumerate(value)
    if _is_record(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return () if value is None else None


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    items = _items(value)
    if items is None:
        yield path, value
        return
    for key, item in items:
        yield from _walk(f"{path}/{key}" if path else str(key), item)


def _rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _rebuilt(item, leaves) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([_rebuilt(item, leaves) for item in value])
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(item, leaves) for item in value)
    if _is_record(value):
        rebuilt = copy.copy(value)
        for name, item in _items(value) or ():
            object.__setattr__(rebuilt, name, _rebuilt(item, leaves))  # it may be frozen
        return rebuilt
    return None if value is None else next(leaves)

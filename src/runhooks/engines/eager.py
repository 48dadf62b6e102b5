"""``EagerEngine``, the base of engines that call the user's functions one by one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from runhooks.arrays.trees import (
    builtin_container_of,
    by_path,
    container_of,
    mapped,
    walk,
    with_leaves,
)
from runhooks.engines.conform import (
    Form,
    as_numbers,
    check_new_leaf,
    check_structure,
    check_unmasked,
    is_inexact,
    number_as,
)
from runhooks.graph.engine import BoundBody, BoundedCache, Engine, Ready, evaluate, ready
from runhooks.graph.nodes import UPDATE, Operation, Tensor, Variable
from runhooks.graph.plan import Body

Evaluate: TypeAlias = Callable[[dict[Tensor, Any], Mapping[Any, Any]], dict[Variable, Any]]
ReadArgs: TypeAlias = Callable[[Mapping[Tensor, Any]], tuple[Any, ...]]

_NUMPY = (np.ndarray, np.generic)


class EagerEngine(Engine):
    """Evaluates a graph operation by operation; pytrees: lists, tuples, dicts and dataclasses.

    A subclass for ``register_engine`` has a ``name`` and ``arrays``, the library whose arrays
    variables hold, and overrides what that does in its own way, as ``examples/engine_mlx.py`` does.

    Functions are called with copies of what variables hold, which they may change, and with arrays
    of the library in the place of NumPy's. What is fetched is a copy too.
    """

    def bind(
        self, body: Body, structures: Mapping[Variable, Any], shared: BoundedCache[Any, Any]
    ) -> BoundBody:
        evaluate = self.evaluator(body.operations)
        taken, assigned = (*body.assigned, *body.kept, *body.given), body.assigned
        fetches = [(tensor, self._getter(tensor)) for tensor in body.fetches]
        is_fed = not set(assigned).isdisjoint(body.given)  # assignments see the old value

        def step(*args: Any) -> list[Any]:
            values = dict(zip(taken, args))  # noqa: B905 - as many, and every step does it
            old: Any = dict(zip(assigned, args)) if is_fed else values  # noqa: B905 - more follow
            new = evaluate(values, old)
            # An empty comprehension costs 0.1 us.
            fetched = [get(values[tensor]) for tensor, get in fetches] if fetches else ()
            return [*map(new.__getitem__, assigned), fetched]

        return BoundBody(step, self.explain)

    def explain(self, error: Exception) -> None:
        """Note what is known about an ``error`` out of a run."""

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        """Return what adds outputs to the values it is given, and returns variables' new values."""
        return partial(evaluate, self.ready(operations), self.conform)

    def ready(self, operations: Sequence[Operation]) -> list[Ready]:
        return ready(operations, self.reader)

    def reader(self, op: Operation) -> ReadArgs:
        """Return what reads the arguments of ``op``, with arrays of the engine."""
        if op.type == UPDATE:
            return op.read_args
        read, constant = self.handed(op), self.constant
        return lambda values: tuple([constant(arg) for arg in read(values)])

    def handed(self, op: Operation) -> ReadArgs:
        """Return what reads the arguments of ``op``, which a function may change."""
        own = [(t, self._getter(t) if _is_held(t) or _is_key(t) else same) for t in op.inputs]
        if all(get is same for _, get in own):
            return op.read_args
        read = op.read_args
        return lambda values: read({t: get(values[t]) for t, get in own})

    def _getter(self, tensor: Tensor) -> Callable[[Any], Any]:
        """Return what makes of the value of ``tensor`` one that its reader may change."""
        if _is_key(tensor):
            return self.own_key
        return self.own if _is_held(tensor) else self.fetched(tensor)

    def own(self, value: Any) -> Any:
        """Return a copy of ``value``."""
        if self.arrays.owns(type(value)):
            return self.arrays.snapshot(value)
        return self.map_leaves(self._own_leaf, value)

    def own_key(self, key: Any) -> Any:
        """Return a copy of a random key: no reader's draws depend on another's."""
        return copy.deepcopy(key)

    def fetched(self, tensor: Tensor) -> Callable[[Any], Any]:
        """Return what makes of the value of ``tensor`` the one that is fetched."""
        return self.own

    def array(self, value: Any) -> Any:
        """Return a number, or any array, as an array on the default device."""
        return self.arrays.from_numpy(np.asarray(value))

    def cast(self, new: Any, old: Any) -> Any:
        """Return ``new`` with the dtype of ``old``, where ``old`` is."""
        if new.dtype == old.dtype:
            return new
        host = self.arrays.to_numpy(new)
        return self.arrays.from_numpy(host.astype(self.host_form(old)[1]), old)

    def constant(self, value: Any) -> Any:
        if isinstance(value, _NUMPY):
            return self.array(value) if value.dtype.kind in "biufcV" else value
        if isinstance(value, dict | list | tuple):
            return mapped(self.constant, value, builtin_container_of)
        return value

    def initial(self, name: str, value: Any) -> Any:
        leaves = self.leaves(value).items()
        return self.with_leaves(value, [self.initial_leaf(name, *leaf) for leaf in leaves])

    def initial_leaf(self, name: str, path: str, leaf: Any) -> Any:
        """Return a copy of ``leaf``; TypeError if it is not of numbers."""
        if self.arrays.owns(type(leaf)):
            return self.arrays.snapshot(leaf)
        self.check_initial_leaf(name, path, leaf)
        return self.array(leaf)

    def check_initial_leaf(self, name: str, path: str, leaf: Any) -> None:
        if not self.arrays.owns(type(leaf)):
            as_numbers(name, path, leaf)

    def conform(self, name: str, old: Any, new: Any, path: str = "") -> Any:
        if type(old) is type(new) is dict and old.keys() == new.keys():
            below = f"{path}/" if path else path
            return {k: self.conform(name, it, new[k], f"{below}{k}") for k, it in old.items()}
        if container_of(old) is container_of(new) is None:
            return self.conform_leaf(name, path, old, new)
        old_leaves, new_leaves = by_path(walk(old, path)), by_path(walk(new, path))
        check_structure(name, old_leaves, new_leaves)
        conformed = [self.conform_leaf(name, p, it, new_leaves[p]) for p, it in old_leaves.items()]
        return self.with_leaves(old, conformed)

    def sum(self, leaf: Any, delta: Any) -> Any:
        return leaf + self.constant(delta)

    def add(self, name: str, old: Any, delta: Any) -> Any:
        if container_of(old) is None:
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
            return self.arrays.snapshot(self.cast(new, old))
        # The form that rounds less.
        moved = old + (new - old) * weight if weight < 0.5 else new - (new - old) * (1 - weight)
        return self.cast(moved, old)

    def as_like(self, old: Any, new: Any) -> Any:
        return self.cast(new, old)

    def new_sums(self) -> Any:
        return self.array(np.zeros(4))

    def add_to_sums(self, name: str, sums: Any, value: Any, weight: Any) -> Any:
        total, lost, count, _ = self.arrays.to_numpy(sums).tolist()
        added, number = self._number(f"the weight of {name}", weight), self._number(name, value)
        if added:  # without examples, the value may be NaN
            total, lost = _compensated(total, lost, number * added)
        return self.array(np.array([total, lost, count + added, 0.0]))

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, int | float):
            return float(value)
        array = np.asarray(self.arrays.to_numpy(value))
        if array.size != 1:
            raise ValueError(f"{name!r} must be a single number, got the shape {array.shape}")
        return float(array.reshape(()))

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        """Return a ``numpy.random.Generator``, unless a subclass has keys of its own."""
        return np.random.default_rng([seed, stream, int(runs)])

    def leaves(self, value: Any) -> dict[str, Any]:
        return by_path(walk(value))

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        return with_leaves(value, leaves)

    def children(self, value: Any) -> dict[str, Any]:
        container = container_of(value)
        return {} if container is None else {str(k): it for k, it in container.items(value)}

    def map_leaves(self, fn: Callable[[Any], Any], value: Any) -> Any:
        return mapped(fn, value)

    def _own_leaf(self, leaf: Any) -> Any:
        return self.arrays.snapshot(leaf) if self.arrays.owns(type(leaf)) else leaf

    def conform_leaf(self, name: str, path: str, old: Any, new: Any) -> Any:
        """As ``conform``, of a leaf."""
        is_number = isinstance(new, int | float) and not isinstance(new, np.generic)
        if is_number and not old.shape:
            number = number_as(name, path, new, self.host_form(old)[1])
            return self.from_host(old, np.asarray(number))
        check_unmasked(name, path, new)
        if not self.arrays.owns(type(new)):
            new = self.array(new)
        if old.shape != new.shape or old.dtype != new.dtype:
            check_new_leaf(name, path, self._form(old), self._form(new))
        return self.arrays.snapshot(self.cast(new, old))

    def _form(self, array: Any) -> Form:
        try:
            return self.host_form(array)
        except (TypeError, ImportError):  # NumPy has no such dtype
            return tuple(array.shape), array.dtype


def same(value: Any) -> Any:
    return value


def _is_held(tensor: Tensor) -> bool:
    """Whether it is the old or new value of a variable."""
    return isinstance(tensor, Variable) or tensor.op.assigns is not None


def _is_key(tensor: Tensor) -> bool:
    return tensor.op.type == "RandomKey"


def _compensated(total: Any, lost: Any, added: Any) -> tuple[Any, Any]:
    """Return ``total + added``, and ``lost`` plus what that lacks; after Neumaier."""
    new = total + added
    if not math.isfinite(new):  # infinity lacks nothing
        return new, 0.0
    large, small = (total, added) if abs(total) >= abs(added) else (added, total)
    return new, lost + ((large - new) + small)

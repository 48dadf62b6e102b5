"""``EagerEngine``: the base of engines that call the user's functions one by one."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from runhooks.engines.conform import (
    Form,
    as_numbers,
    by_path,
    check_new_leaf,
    check_structure,
    check_unmasked,
    is_inexact,
    number_as,
)
from runhooks.graph.engine import BoundBody, BoundedCache, Engine
from runhooks.graph.evaluate import Ready, evaluate, ready
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.plan import Body

Evaluate: TypeAlias = Callable[[dict[Tensor, Any], Mapping[Variable, Any]], dict[Variable, Any]]
ReadArgs: TypeAlias = Callable[[Mapping[Tensor, Any]], tuple[Any, ...]]

_NUMPY = (np.ndarray, np.generic)


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

    def bind(
        self, body: Body, structures: Mapping[Variable, Any], shared: BoundedCache[Any, Any]
    ) -> BoundBody:
        evaluate = self.evaluator(body.operations)
        taken, assigned = (*body.assigned, *body.kept, *body.given), body.assigned
        # A caller may change what it gets back.
        fetches = [(tensor, self._getter(tensor)) for tensor in body.fetches]

        def step(*args: Any) -> list[Any]:
            values = dict(zip(taken, args, strict=True))
            if not assigned:
                evaluate(values, {})
                return [[get(values[tensor]) for tensor, get in fetches]]
            new = evaluate(values, dict(zip(assigned, args)))  # noqa: B905 - more follow
            fetched = [get(values[tensor]) for tensor, get in fetches]
            return [*[new[variable] for variable in assigned], fetched]

        return BoundBody(step)

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        """Return a function that puts the outputs of ``operations`` into the values it is given.

        It returns the variables' new values.
        """
        return partial(evaluate, self.ready(operations), conform=self.conform)

    def ready(self, operations: Sequence[Operation]) -> list[Ready]:
        """Return ``operations``, in order, as they are evaluated."""
        return ready(operations, self.reader)

    def reader(self, op: Operation) -> ReadArgs:
        """Return what reads the arguments that the function of ``op`` is called with."""
        read, constant = self.handed(op), self.constant
        return lambda values: tuple([constant(arg) for arg in read(values)])

    def handed(self, op: Operation) -> ReadArgs:
        """Return what reads the arguments of ``op``; its function may change these."""
        own = {t: self._getter(t) for t in op.inputs if _is_held(t) or _is_key(t)}
        if not own:
            return op.read_args
        read, getters = op.read_args, own.items()
        return lambda values: read({**values, **{t: get(values[t]) for t, get in getters}})

    def _getter(self, tensor: Tensor) -> Callable[[Any], Any]:
        """Return what makes of the value of ``tensor`` one that its reader may change."""
        if not _is_key(tensor):
            return self.own if _is_held(tensor) else self.fetched(tensor)
        # A generator changes as it is used. What one reader draws must not depend on whether
        # another, such as a hook on its due step, has drawn before.
        return self.own_key

    def own(self, value: Any) -> Any:
        """Return a copy of ``value``; what is done to it does not reach ``value``."""
        if self.arrays.owns(type(value)):
            return self.arrays.snapshot(value)
        return self.map_leaves(self._own_leaf, value)

    def own_key(self, key: Any) -> Any:
        """Return a random key in the state of ``key``; drawing from one leaves the other alone."""
        return copy.deepcopy(key)

    def fetched(self, tensor: Tensor) -> Callable[[Any], Any]:
        """Return what makes of the value of ``tensor`` one for whoever has fetched it."""
        return self.own

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
        return self._conformed(name, "", old, new)

    def _conformed(self, name: str, path: str, old: Any, new: Any) -> Any:
        if type(old) is type(new) is dict and old.keys() == new.keys():
            below = f"{path}/" if path else path
            return {k: self._conformed(name, f"{below}{k}", old[k], new[k]) for k in old}
        if _container(old) is _container(new) is None:
            return self.conform_leaf(name, path, old, new)
        old_leaves, new_leaves = by_path(_walk(path, old)), by_path(_walk(path, new))
        check_structure(name, old_leaves, new_leaves)
        conformed = [self.conform_leaf(name, p, it, new_leaves[p]) for p, it in old_leaves.items()]
        return self.with_leaves(old, conformed)

    def sum(self, leaf: Any, delta: Any) -> Any:
        """Return ``leaf + delta``."""
        return leaf + self.constant(delta)

    def add(self, name: str, old: Any, delta: Any) -> Any:
        if _container(old) is None:
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
        rest = iter(leaves)
        return _mapped(lambda _: next(rest), value)

    def children(self, value: Any) -> dict[str, Any]:
        container = _container(value)
        return {} if container is None else {str(k): it for k, it in container.items(value)}

    def map_leaves(self, fn: Callable[[Any], Any], value: Any) -> Any:
        """Return ``value`` with ``fn`` of each leaf in its place, in new containers."""
        return _mapped(fn, value)

    def _own_leaf(self, leaf: Any) -> Any:
        return self.arrays.snapshot(leaf) if self.arrays.owns(type(leaf)) else leaf

    def conform_leaf(self, name: str, path: str, old: Any, new: Any) -> Any:
        """Return a copy of a leaf of a new value as the variable holds it.

        Raises as ``conform``.
        """
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


class _Container(NamedTuple):
    """A type of containers: how to take one apart, and how to make one like it of other parts."""

    items: Callable[[Any], Iterable[tuple[Any, Any]]]
    like: Callable[[Any, list[Any]], Any]


_known: dict[type, _Container | None] = {}


def _container(value: Any) -> _Container | None:
    """Return how values of this type are containers; None if they are leaves."""
    kind = type(value)
    if kind not in _known:
        _known[kind] = _container_of(kind)
    return _known[kind]


def _container_of(kind: type) -> _Container | None:
    if issubclass(kind, Mapping):
        return _Container(
            lambda it: it.items(), lambda it, parts: dict(zip(it, parts, strict=True))
        )
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _Container(lambda it: it._asdict().items(), lambda it, parts: it._make(parts))
    if issubclass(kind, list | tuple):
        return _Container(enumerate, lambda it, parts: type(it)(parts))
    if dataclasses.is_dataclass(kind):
        return _Container(_fields_of, _record_like)
    if kind is type(None):
        return _Container(lambda it: (), lambda it, parts: None)
    return None


def _fields_of(record: Any) -> Iterable[tuple[str, Any]]:
    return [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]


def _record_like(record: Any, parts: list[Any]) -> Any:
    changed = copy.copy(record)
    for (name, _), part in zip(_fields_of(record), parts, strict=True):
        object.__setattr__(changed, name, part)  # it may be frozen
    return changed


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    container = _container(value)
    if container is None:
        yield path, value
        return
    for key, item in container.items(value):
        yield from _walk(f"{path}/{key}" if path else str(key), item)


def _mapped(fn: Callable[[Any], Any], value: Any) -> Any:
    container = _container(value)
    if container is None:
        return fn(value)
    return container.like(value, [_mapped(fn, item) for _, item in container.items(value)])


def _is_held(tensor: Tensor) -> bool:
    """Return whether its value is that of a variable, the old or the new one."""
    return isinstance(tensor, Variable) or tensor.op.assigns is not None


def _is_key(tensor: Tensor) -> bool:
    return tensor.op.type == "RandomKey"

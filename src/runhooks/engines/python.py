"""The python engine: the user's functions are called one by one, over NumPy or anything else.

Arrays that a variable holds are its own and read-only: a change of one in place would break what
a run promises, that variables change all together or not at all. A function makes a new one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runhooks.engines.conform import by_path, check_leaf, check_structure, describe, number_as
from runhooks.engines.engine import Compiled
from runhooks.engines.python_profile import start_python_profile
from runhooks.errors import AbortedError, UnavailableError
from runhooks.graph.evaluate import evaluate
from runhooks.graph.plan import Body
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable
from runhooks.summary.histogram import histogram_counts


class PythonEngine:
    """Evaluates a graph operation by operation; pytrees are lists, tuples and dicts."""

    name = "python"

    def compile(self, body: Body) -> Compiled:
        reads = (*body.assigned, *body.kept)

        def run(variables: Mapping[Variable, Any], given: Sequence[Any]) -> list[Any]:
            # A function may change the containers it is handed, and a caller those it gets back.
            values: dict[Tensor, Any] = {v: _copied(variables[v]) for v in reads}
            values.update(zip(body.given, given, strict=True))
            before = [variables[v] for v in body.assigned]
            assigned = evaluate(body.operations, values, variables, self.conform, _read_args)
            for variable, old in zip(body.assigned, before, strict=True):
                if variables[variable] is not old:
                    raise RuntimeError(
                        f"variable {variable.op.name!r} was assigned by a run inside this run, "
                        "which assigns it too: make the inner run a part of the graph"
                    )
            fetched = [_own_key(t, values[t]) for t in body.fetches]
            return [_copied(assigned[v]) for v in body.assigned] + fetched

        return run

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, AbortedError | UnavailableError)

    def constant(self, value: Any) -> Any:
        return value

    def initial(self, name: str, value: Any) -> Any:
        copies = []
        for path, leaf in self.leaves(value).items():
            array = np.array(leaf)
            if array.dtype.hasobject or array.dtype.kind in "SUMm":
                raise TypeError(
                    f"variable {describe(name, path)} must hold arrays or numbers, "
                    f"got {type(leaf).__name__}"
                )
            copies.append(_frozen(array.astype(array.dtype.newbyteorder("="))))
        return self.with_leaves(value, copies)

    def conform(self, name: str, old: Any, new: Any) -> Any:
        old_leaves, new_leaves = self.leaves(old), self.leaves(new)
        check_structure(name, old_leaves, new_leaves)
        kept = []
        for path, leaf in old_leaves.items():
            new_leaf = new_leaves[path]
            if isinstance(new_leaf, int | float) and not isinstance(new_leaf, np.generic):
                new_leaf = number_as(name, path, new_leaf, leaf.dtype)
            array = np.asarray(new_leaf)
            check_leaf(name, path, leaf, array)
            kept.append(_frozen(array.astype(leaf.dtype)))
        return self.with_leaves(old, kept)

    def add(self, old: Any, delta: Any) -> Any:
        if not isinstance(old, list | tuple | Mapping):
            return _sum(old, delta)
        leaves, deltas = self.leaves(old), self.leaves(delta)
        if "" in deltas:
            deltas = dict.fromkeys(leaves, delta)
        check_structure("assign_add", leaves, deltas)
        return self.with_leaves(old, [_sum(leaf, deltas[p]) for p, leaf in leaves.items()])

    def integer(self, value: int) -> Any:
        return np.int64(value)

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        return np.random.default_rng([seed, stream, int(runs)])

    def wait(self, values: Sequence[Any]) -> None:
        """A value is computed when it is there."""

    def leaves(self, value: Any) -> dict[str, Any]:
        return by_path(_walk("", value))

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        return _rebuilt(value, iter(leaves))

    def to_host(
        self, leaves: Sequence[Any], into: Sequence[np.ndarray[Any, Any] | None] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        return [np.asarray(leaf) for leaf in leaves]

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        return leaf.shape, leaf.dtype

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        return _frozen(array.copy())

    def histogram(self, values: Any) -> Any:
        return histogram_counts(values)

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        return start_python_profile(folder, step)


def _read_args(op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
    keys = {t: _own_key(t, values[t]) for t in op.inputs if t.op.type == "RandomKey"}
    return op.read_args({**values, **keys} if keys else values)


def _own_key(tensor: Tensor, value: Any) -> Any:
    # A generator changes as it is used. What one reader draws must not depend on whether another,
    # such as a hook on its due step, has drawn before.
    return copy.deepcopy(value) if tensor.op.type == "RandomKey" else value


def _frozen(array: np.ndarray[Any, Any]) -> Any:
    array.flags.writeable = False
    return array[()] if array.ndim == 0 else array


def _sum(leaf: Any, delta: Any) -> Any:
    # NumPy would make float32 of a half and a Python number.
    half = leaf.dtype.itemsize <= 2 and leaf.dtype.kind in "fV"
    return leaf + (leaf.dtype.type(delta) if half and isinstance(delta, int | float) else delta)


def _copied(value: Any) -> Any:
    return _rebuilt(value, (leaf for _, leaf in _walk("", value)))


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    elif value is None:
        return
    else:
        yield path, value
        return
    for key, part in parts:
        yield from _walk(f"{path}/{key}" if path else str(key), part)


def _rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _rebuilt(part, leaves) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([_rebuilt(part, leaves) for part in value])
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(part, leaves) for part in value)
    return None if value is None else next(leaves)


ENGINE = PythonEngine()

"""The python engine: the user's functions are called one by one, over NumPy or anything else.

Arrays that a variable holds are its own and read-only: a change of one in place would break what
a run promises, that variables change all together or not at all. A function makes a new one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runhooks.engines.conform import check_leaf, check_structure, describe, number_as
from runhooks.engines.eager import EagerEngine
from runhooks.engines.python_profile import start_python_profile
from runhooks.summary.kinds.histogram import histogram_counts


class PythonEngine(EagerEngine):
    """Evaluates a graph operation by operation; pytrees are lists, tuples and dicts."""

    name = "python"

    def own(self, value: Any) -> Any:
        # Arrays are read-only; the containers are not.
        return self.map_leaves(lambda leaf: leaf, value)

    def own_key(self, key: Any) -> Any:
        return copy.deepcopy(key)

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

    def sum(self, leaf: Any, delta: Any) -> Any:
        # NumPy would make float32 of a half and a Python number.
        half = leaf.dtype.itemsize <= 2 and leaf.dtype.kind in "fV"
        return leaf + (leaf.dtype.type(delta) if half and isinstance(delta, int | float) else delta)

    def integer(self, value: int) -> Any:
        return np.int64(value)

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        return np.random.default_rng([seed, stream, int(runs)])

    def wait(self, values: Sequence[Any]) -> None:
        """A value is computed when it is there."""

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


def _frozen(array: np.ndarray[Any, Any]) -> Any:
    array.flags.writeable = False
    return array[()] if array.ndim == 0 else array


ENGINE = PythonEngine()

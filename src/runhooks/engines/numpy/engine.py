"""The python engine, over NumPy or anything else.

The arrays of variables are read-only: those of a run change all together or not at all.
"""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from runhooks.arrays import library_of
from runhooks.arrays.registry import NUMPY
from runhooks.engines.conform import as_numbers, is_inexact
from runhooks.engines.eager import EagerEngine, ReadArgs
from runhooks.errors import add_note
from runhooks.graph.nodes import Operation, Tensor


class PythonEngine(EagerEngine):
    """Evaluates a graph operation by operation; pytrees are lists, tuples and dicts."""

    name = "python"
    title = "Python"
    arrays = NUMPY

    def explain(self, error: Exception) -> None:
        if isinstance(error, ValueError) and "read-only" in str(error):
            add_note(
                error,
                "arrays of states and variables are read-only in a step: return new ones "
                "(v = v + dv), or change a copy (v = v.copy())",
            )

    def reader(self, op: Operation) -> ReadArgs:
        return self.handed(op)

    def conform(self, name: str, old: Any, new: Any, path: str = "") -> Any:
        if type(old) is type(new) is dict and old.keys() == new.keys():
            conformed = {}
            for key, it in old.items():  # a call for each array of a step would show
                value = new[key]
                if (
                    type(value) is ndarray
                    and type(it) is ndarray
                    and value.dtype == it.dtype
                    and value.shape == it.shape
                ):
                    if value is not it:
                        value = value.copy("K")
                        value.setflags(False)  # type: ignore[call-arg]
                else:
                    value = self.conform(name, it, value, f"{path}/{key}" if path else str(key))
                conformed[key] = value
            return conformed
        if type(new) is ndarray and type(old) is ndarray:
            if new is old:
                return old
            if new.dtype == old.dtype and new.shape == old.shape:
                copied = new.copy("K")
                copied.setflags(False)  # type: ignore[call-arg]
                return copied
        return super().conform(name, old, new, path)

    def own(self, value: Any) -> Any:
        # Arrays are read-only; the containers are not.
        if type(value) is dict:
            return {k: it if type(it) is ndarray else self.own(it) for k, it in value.items()}
        return value if type(value) is ndarray else self.map_leaves(_same, value)

    def fetched(self, tensor: Tensor) -> Callable[[Any], Any]:
        return _same

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
        # A Python number keeps the dtype, which NumPy 1, or any with a bfloat16, would widen.
        like = type(delta) is int and leaf.dtype.kind in "iu"
        like = like or (type(delta) in (int, float) and is_inexact(leaf.dtype))
        return leaf + (leaf.dtype.type(delta) if like else delta)

    def mean_of_sums(self, sums: Any) -> Any:
        with np.errstate(invalid="ignore"):  # of nothing it is NaN
            return super().mean_of_sums(sums)

    def integer(self, value: int) -> Any:
        return np.int64(value)

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        return _frozen(array.copy())

    def place(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        return _frozen(array)

    def histogram(self, values: Any) -> Any:
        return library_of(values).histogram(values)

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        """Profile this thread alone; waiting for another is time of the call that waits."""
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


def _same(leaf: Any) -> Any:
    return leaf


def _frozen(array: np.ndarray[Any, Any]) -> Any:
    array.setflags(False)  # type: ignore[call-arg] # twice as fast as by name
    return array[()] if array.ndim == 0 else array


ENGINE = PythonEngine()

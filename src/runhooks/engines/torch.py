"""The torch engine: the user's functions are called one by one, over tensors of PyTorch.

Variables are values, as on every engine: a function gets a copy, with which it may do what it
likes, and what it returns becomes the variable's new value when the run has succeeded. Modules
that a training step changes in place are the matter of ``runhooks.torch``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runhooks.engines.conform import check_structure, describe, number_as
from runhooks.engines.eager import EagerEngine
from runhooks.engines.torch_arrays import (
    cloned,
    count,
    form,
    from_numpy,
    numpy_dtype,
    synchronize,
    to_host,
)
from runhooks.engines.torch_profile import start_torch_profile
from runhooks.graph.tensor import Operation, Tensor

#: What ``memory`` tells, by what torch calls it.
_MEMORY = {
    "allocated_bytes": "allocated_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "reserved_bytes": "reserved_bytes.all.current",
    "allocation_retries": "num_alloc_retries",
}

_ARRAY = (np.ndarray, np.generic)


class TorchEngine(EagerEngine):
    """Evaluates a graph operation by operation; pytrees are lists, tuples and dicts.

    Arrays of NumPy among what a function is called with become tensors on torch's default device.
    What is fetched is detached, and a copy of its own.
    """

    name = "torch"

    def read_args(self, op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
        return tuple([_with_tensors(arg) for arg in super().read_args(op, values)])

    def own(self, value: Any) -> Any:
        return cloned(value) if isinstance(value, torch.Tensor) else self.map_leaves(cloned, value)

    def own_key(self, key: Any) -> Any:
        copy = torch.Generator(key.device)
        copy.set_state(key.get_state())
        return copy

    def fetched(self, tensor: Tensor, value: Any) -> Any:
        return self.own(value)

    def leaves(self, value: Any) -> dict[str, Any]:
        if isinstance(value, torch.nn.Module):
            raise TypeError(
                f"a {type(value).__name__} is changed in place, and no value of a variable: give "
                "it to rh.torch.graph(...) by name, or take dict(module.named_parameters())"
            )
        return super().leaves(value)

    def constant(self, value: Any) -> Any:
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biufcV"
        return _placed(value) if is_array else value

    def initial(self, name: str, value: Any) -> Any:
        leaves = [_initial_leaf(name, path, leaf) for path, leaf in self.leaves(value).items()]
        return self.with_leaves(value, leaves)

    def conform(self, name: str, old: Any, new: Any) -> Any:
        old_leaves, new_leaves = self.leaves(old), self.leaves(new)
        check_structure(name, old_leaves, new_leaves)
        kept = [_conformed(name, p, leaf, new_leaves[p]) for p, leaf in old_leaves.items()]
        return self.with_leaves(old, kept)

    def sum(self, leaf: Any, delta: Any) -> Any:
        return leaf + _with_tensors(delta)

    def integer(self, value: int) -> int:
        return value

    def random_key(self, seed: int, stream: int, runs: Any) -> torch.Generator:
        (number,) = np.random.SeedSequence([seed, stream, int(runs)]).generate_state(1, np.uint64)
        return torch.Generator(torch.get_default_device()).manual_seed(int(number >> 1))

    def wait(self, values: Sequence[Any]) -> None:
        synchronize([leaf for value in values for leaf in self.leaves(value).values()])

    def to_host(
        self, leaves: Sequence[Any], into: Sequence[np.ndarray[Any, Any] | None] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        # The global step is no tensor, and comes as what it is.
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        places = None if into is None else [into[i] for i in at]
        arrays = dict(zip(at, to_host([leaves[i] for i in at], places), strict=True))
        return [arrays[i] if i in arrays else np.asarray(leaf) for i, leaf in enumerate(leaves)]

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        return tuple(leaf.shape), numpy_dtype(leaf.dtype)

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        return from_numpy(array, leaf.dtype).to(leaf.device)

    def histogram(self, values: Any) -> Any:
        return count(values if isinstance(values, torch.Tensor) else torch.as_tensor(values))

    def memory(self) -> dict[str, int]:
        if not torch.cuda.is_available():
            return {}
        stats = {f"cuda:{i}": torch.cuda.memory_stats(i) for i in range(torch.cuda.device_count())}
        return {
            f"{device}/{name}": its_stats[key]
            for device, its_stats in stats.items()
            for name, key in _MEMORY.items()
            if its_stats.get("reserved_bytes.all.peak")  # in use by this process
        }

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        return start_torch_profile(folder, step)


def _placed(array: Any) -> torch.Tensor:
    return from_numpy(np.asarray(array)).to(torch.get_default_device())


def _with_tensors(value: Any) -> Any:
    """``value`` with tensors in the place of arrays of NumPy, of those dtypes that torch has."""
    if isinstance(value, _ARRAY):
        return _placed(value) if value.dtype.kind in "biufcV" else value
    if isinstance(value, dict):
        return {key: _with_tensors(part) for key, part in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)(_with_tensors(part) for part in value)
    return value


def _initial_leaf(name: str, path: str, leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        if leaf.layout != torch.strided or leaf.is_meta:
            raise TypeError(
                f"variable {describe(name, path)} must hold dense tensors with data, got one of "
                f"{leaf.layout} on {leaf.device}"
            )
        return leaf.detach().clone()
    if isinstance(leaf, bool | int | float | complex):
        return torch.tensor(leaf)
    array = np.asarray(leaf)
    if array.dtype.kind in "OSUMm":
        raise TypeError(
            f"variable {describe(name, path)} must hold arrays or numbers, "
            f"got {type(leaf).__name__}"
        )
    return _placed(array)


def _conformed(name: str, path: str, old: torch.Tensor, new: Any) -> torch.Tensor:
    if isinstance(new, bool | int | float) and not isinstance(new, np.generic):
        new = from_numpy(np.asarray(number_as(name, path, new, numpy_dtype(old.dtype))), old.dtype)
    elif not isinstance(new, torch.Tensor):
        new = _placed(np.asarray(new))
    if old.shape != new.shape or not _fits(new.dtype, old.dtype):
        raise ValueError(
            f"variable {describe(name, path)} keeps its shape and dtype, "
            f"{form(old)}: the new value is {form(new)}; "
            "convert it where it is made, with .to for example"
        )
    kept: torch.Tensor = new.detach().to(old.device, old.dtype)
    return kept


def _fits(dtype: torch.dtype, into: torch.dtype) -> bool:
    if dtype == into:
        return True
    try:
        return bool(np.can_cast(numpy_dtype(dtype), numpy_dtype(into), "safe"))
    except (TypeError, ImportError):
        return False


ENGINE = TorchEngine()

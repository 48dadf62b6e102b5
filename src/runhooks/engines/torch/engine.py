"""The torch engine calls the user's functions one by one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from runhooks.arrays.shards import ArraySource
from runhooks.arrays.torch import (
    ARRAYS,
    cloned,
    from_numpy,
    is_distributed,
    numpy_dtype,
    synchronize,
)
from runhooks.engines.conform import describe
from runhooks.engines.eager import EagerEngine

_MEMORY = {
    "allocated_bytes": "allocated_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "reserved_bytes": "reserved_bytes.all.current",
    "allocation_retries": "num_alloc_retries",
}


def _single(name: str, value: Any) -> torch.Tensor:
    tensor = torch.as_tensor(value).detach()
    if tensor.numel() != 1:
        raise ValueError(f"{name!r} must be a single number, got the shape {tuple(tensor.shape)}")
    if tensor.is_complex():
        raise TypeError(f"{name!r} must be a real number, got {tensor.dtype}")
    tensor = tensor.reshape(())
    return tensor if tensor.is_floating_point() else tensor.double()


@cache
def _one(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.ones((), dtype=dtype, device=device)


class TorchEngine(EagerEngine):
    """New tensors are made on torch's default device. What is fetched is detached."""

    name = "torch"
    title = "PyTorch"
    arrays = ARRAYS

    def own(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        return self.map_leaves(cloned, value)

    def own_key(self, key: Any) -> Any:
        copy = torch.Generator(key.device)
        copy.set_state(key.get_state())
        return copy

    def leaves(self, value: Any) -> dict[str, Any]:
        if isinstance(value, torch.nn.Module):
            raise TypeError(
                f"a variable cannot hold a {type(value).__name__}, which changes in place: give it "
                "to rh.torch.graph(...) by name, or take dict(module.named_parameters())"
            )
        return super().leaves(value)

    def array(self, value: Any) -> torch.Tensor:
        if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
            return torch.tensor(value)
        return from_numpy(np.asarray(value)).to(torch.get_default_device())

    def cast(self, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        cast: torch.Tensor = new.detach().to(old.device, old.dtype)
        return cast

    def initial_leaf(self, name: str, path: str, leaf: Any) -> torch.Tensor:
        if not isinstance(leaf, torch.Tensor):
            return super().initial_leaf(name, path, leaf)  # type: ignore[no-any-return]
        if leaf.layout != torch.strided or leaf.is_meta:
            raise TypeError(
                f"variable {describe(name, path)} must hold dense tensors with data, got one of "
                f"{leaf.layout} on {leaf.device}"
            )
        return leaf.detach().clone()

    def wide(self, leaf: torch.Tensor) -> torch.Tensor:
        is_short = leaf.is_floating_point() and leaf.element_size() < 4
        return leaf.detach().to(torch.float32 if is_short else leaf.dtype, copy=True)

    def new_sums(self) -> torch.Tensor:
        return torch.zeros(2, dtype=torch.float64)

    def add_to_sums(self, name: str, sums: Any, value: Any, weight: Any) -> Any:
        # No value is read: that would wait for the device.
        value = _single(name, value)
        if value.device.type == "mps":  # it has no float64
            value = value.cpu()
        if sums.device != value.device:
            sums = sums.to(value.device, non_blocking=True)  # they stay there for the epoch
        one = _one(value.dtype, value.device)
        # Without examples, the value may be NaN.
        if isinstance(weight, int | float):
            return torch.add(sums, torch.stack([value, one]), alpha=weight) if weight else sums
        weight = _single(f"the weight of {name}", weight).to(sums)
        pair = torch.stack([torch.where(weight == 0, 0, value), one])
        return torch.addcmul(sums, pair, weight)

    def mean_of_sums(self, sums: Any) -> Any:
        return sums[0] / sums[1]

    def random_key(self, seed: int, stream: int, runs: Any) -> torch.Generator:
        (number,) = np.random.SeedSequence([seed, stream, int(runs)]).generate_state(1, np.uint64)
        return torch.Generator(torch.get_default_device()).manual_seed(int(number) >> 1)

    def wait(self, values: Sequence[Any]) -> None:
        synchronize([leaf for value in values for leaf in self.leaves(value).values()])

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        return tuple(leaf.shape), numpy_dtype(leaf.dtype)

    def from_source(self, leaf: Any, source: ArraySource) -> Any:
        return self.arrays.from_source(source, leaf)

    def memory(self) -> dict[str, int]:
        if not torch.cuda.is_available():
            return {}
        stats = map(torch.cuda.memory_stats, range(torch.cuda.device_count()))
        return {
            f"cuda:{i}/{name}": of_device[key]
            for i, of_device in enumerate(stats)
            for name, key in _MEMORY.items()
            if of_device.get("reserved_bytes.all.peak")  # in use by this process
        }

    def details(self) -> dict[str, str]:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        gpus = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(count)]
        metal = ["mps"] if torch.backends.mps.is_available() else []
        return {"devices": ", ".join(["cpu", *gpus, *metal])}

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        # Stopping a second one ends the process.
        if getattr(torch.autograd, "_profiler_enabled", lambda: False)():
            raise RuntimeError("another profiler of torch is running")
        profile = torch.profiler.profile(record_shapes=True, with_stack=True)
        profile.start()

        def stop() -> Path:
            profile.stop()
            path = folder / f"timeline-{step}.pt.trace.json"
            profile.export_chrome_trace(str(path))
            return path

        return stop


def module_graph(
    module: torch.nn.Module, inputs: Any, verbose: bool, strict: bool
) -> tuple[bytes, bytes]:
    """Return the ``GraphDef`` and ``RunMetadata`` of ``module``, called with ``inputs``.

    ImportError without TensorBoard, RuntimeError if it cannot be traced.
    """
    from torch.utils.tensorboard._pytorch_graph import graph

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.trace", DeprecationWarning)
        made, run_metadata = graph(module, inputs, verbose, strict)
    return made.SerializeToString(), run_metadata.SerializeToString()


ENGINE = TorchEngine()


class Averages:
    """Moving averages, an object that checkpoints hold.

    ``tensors``: one with several names is averaged once; ``parts``: the names that asked for them.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], parts: Collection[str]) -> None:
        self.parts = parts
        pairs = {id(tensor): (ENGINE.wide(tensor), tensor) for tensor in tensors.values()}
        self._averages = {name: pairs[id(tensor)][0] for name, tensor in tensors.items()}
        self._pairs = list(pairs.values())
        # Torch moves many of a kind at once.
        self._kinds: dict[bool, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self._others: list[tuple[torch.Tensor, torch.Tensor]] = []
        for average, tensor in self._pairs:
            is_inexact = average.is_floating_point() or average.is_complex()
            kind = self._kinds.setdefault(is_distributed(average), [])
            (kind if is_inexact else self._others).append((average, tensor))

    @property
    def names(self) -> list[str]:
        return list(self._averages)

    @torch.no_grad()
    def update(self, weight: float) -> None:
        """Move the averages towards the tensors; ``weight`` 1: all the way."""
        for average, tensor in self._pairs if weight == 1 else self._others:
            average.copy_(tensor)
        for pairs in self._kinds.values():
            if pairs and weight != 1:
                averages = [average for average, _ in pairs]
                new = [tensor.detach().to(average.dtype) for average, tensor in pairs]
                get_ema_multi_avg_fn(1 - weight)(averages, new, None)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give tensors their averages inside the ``with`` block."""
        before = [cloned(tensor) for _, tensor in self._pairs]
        # Not counted as changes, as they get their values back.
        try:
            for average, tensor in self._pairs:
                tensor.data.copy_(average)
            yield
        finally:
            for (_, tensor), old in zip(self._pairs, before, strict=True):
                tensor.data.copy_(old)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._averages)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, average in self._averages.items():
                average.copy_(state[name])

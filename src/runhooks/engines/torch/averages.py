"""``Averages``: moving averages of parameters and buffers, changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from runhooks.arrays.torch import is_distributed
from runhooks.contexts import contextmanager
from runhooks.engines.torch.engine import wide


class Averages:
    """Moving averages of tensors, an object that checkpoints hold.

    Args:
        tensors: Parameters and buffers by name. One that has several names is averaged once.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = dict(tensors)
        averages = {id(tensor): wide(tensor) for tensor in tensors.values()}
        self._averages = {name: averages[id(tensor)] for name, tensor in tensors.items()}
        unique = {id(tensor): (averages[id(tensor)], tensor) for tensor in tensors.values()}
        pairs = list(unique.values())
        floats = [it for it in pairs if it[0].is_floating_point() or it[0].is_complex()]
        self._others = [it for it in pairs if not (it[0].is_floating_point() or it[0].is_complex())]
        # Torch moves many tensors at once, of one kind.
        self._floats = [it for it in floats if not is_distributed(it[0])]
        self._sharded = [it for it in floats if is_distributed(it[0])]

    @property
    def names(self) -> list[str]:
        """The names of the tensors."""
        return list(self._tensors)

    @torch.no_grad()
    def update(self, weight: float) -> None:
        """Move the averages towards the tensors; ``weight`` 1: all the way."""
        for average, tensor in self._others:
            average.copy_(tensor)
        for pairs in (self._floats, self._sharded):
            if weight == 1:
                for average, tensor in pairs:
                    average.copy_(tensor)
            elif pairs:
                new = [tensor.detach().to(average.dtype) for average, tensor in pairs]
                get_ema_multi_avg_fn(1 - weight)([average for average, _ in pairs], new, None)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the tensors the values of their averages inside the ``with`` block."""
        pairs = [*self._floats, *self._sharded, *self._others]
        before = [tensor.detach().clone() for _, tensor in pairs]
        # Not counted as changes of the tensors: they get their own values back.
        try:
            for average, tensor in pairs:
                tensor.data.copy_(average)
            yield
        finally:
            for (_, tensor), old in zip(pairs, before, strict=True):
                tensor.data.copy_(old)

    def state_dict(self) -> dict[str, Any]:
        """Return the averages by the names of the tensors."""
        return dict(self._averages)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned.

        Raises:
            ValueError: If it has other tensors.
        """
        if state.keys() != self._averages.keys():
            missing = sorted(self._averages.keys() - state.keys())
            unexpected = sorted(state.keys() - self._averages.keys())
            raise ValueError(
                f"the averages are of other parameters: missing {missing[:5]}, "
                f"unknown {unexpected[:5]}"
            )
        with torch.no_grad():
            for name, average in self._averages.items():
                average.copy_(state[name])

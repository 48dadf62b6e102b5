"""``Device``: where the steps of a graph compute, and what is moved there: modules and batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from runhooks.arrays import trees

#: Their elements are looked at one by one; other classes may know how to move themselves.
_PLAIN = (dict, list, tuple)

#: Kinds of devices that have random generators of their own.
_WITH_GENERATORS = ("cpu", "cuda", "xpu", "mps")


class Device:
    """The device of a graph.

    Args:
        device: A ``torch.device``, its name or its number.

    Raises:
        ValueError: If torch knows no such device.
    """

    def __init__(self, device: torch.device | str | int) -> None:
        try:
            self.device = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device must be a device of torch, such as 'cuda' or 'cpu', got {device!r}: "
                f"{str(error).splitlines()[0]}"
            ) from None

    def take(self, modules: Iterable[nn.Module]) -> None:
        """Move ``modules`` here. Their parameters stay the ones that optimizers have."""
        for module in modules:
            module.to(self.device)

    def put(self, value: Any) -> Any:
        """Return ``value`` with its tensors here, as ``value.to(device)`` of each would be.

        Tensors are found in dicts, lists, tuples, named tuples and dataclasses. An object of
        another class that has ``to``, such as a ``PackedSequence``, moves itself. All else, such as
        arrays of NumPy, stays as it is.
        """
        if isinstance(value, torch.Tensor):
            return value.to(self.device, non_blocking=True)
        if type(value) not in _PLAIN:
            move = getattr(value, "to", None)
            if callable(move) and not isinstance(value, type):
                return move(self.device)
        container = trees.container_of(value)
        if container is None:
            return value
        return container.like(value, [self.put(part) for _, part in container.items(value)])

    def generator(self) -> torch.device:
        """Return the device of random generators for what is computed here."""
        has_own = self.device.type in _WITH_GENERATORS
        return self.device if has_own else torch.get_default_device()

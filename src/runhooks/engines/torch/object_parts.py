"""Parts of modules and optimizers that are read and assigned between runs, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from runhooks.arrays import to_numpy
from runhooks.arrays.torch import ARRAYS
from runhooks.engines.conform import check_leaf, number_as
from runhooks.near_names import suggestion

_RATE = "learning_rate"

Modules = Mapping[str, nn.Module]
Optimizers = Mapping[str, torch.optim.Optimizer]


class Part(Protocol):
    """A value inside an object."""

    def read(self) -> NDArray[Any]:
        """Return a copy of the value."""
        ...

    def converted(self, name: str, value: Any) -> Any:
        """Return ``value`` as the part takes it; raise ValueError if it does not fit."""
        ...

    def assign(self, value: Any) -> None:
        """Take a value that was converted."""
        ...


class TensorPart:
    """A tensor, which is changed in place."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def read(self) -> NDArray[Any]:
        return ARRAYS.to_numpy(self.tensor.detach()).copy()

    def converted(self, name: str, value: Any) -> torch.Tensor:
        shape, dtype = ARRAYS.host_form(self.tensor)
        if isinstance(value, int | float) and not isinstance(value, np.generic):
            value = number_as(name, "", value, dtype)
        array = np.asarray(to_numpy(value))
        check_leaf(name, "", (shape, dtype), (array.shape, array.dtype))
        # Of one that several processes hold, each takes its part.
        placed: torch.Tensor = ARRAYS.place(array.astype(dtype), self.tensor)
        return placed

    def assign(self, value: torch.Tensor) -> None:
        with torch.no_grad():
            self.tensor.copy_(value)


class RatePart:
    """The learning rate of a group of an optimizer, where it is a number of Python."""

    def __init__(self, group: dict[str, Any]) -> None:
        self._group = group

    def read(self) -> NDArray[Any]:
        return np.asarray(self._group["lr"])

    def converted(self, name: str, value: Any) -> float:
        array = np.asarray(value)
        check_leaf(name, "", ((), np.dtype(float)), (array.shape, array.dtype))
        return float(array)

    def assign(self, value: float) -> None:
        self._group["lr"] = value


def parts_of(modules: Modules, optimizers: Optimizers, name: str) -> dict[str, Part]:
    """Return the parts called ``name``, or below it, by their names.

    ``"learning_rate"`` is that of the only optimizer; each of its groups is a part.

    Raises:
        ValueError: If there are none.
    """
    known = dict(_parts(modules, optimizers))
    whole = name
    if name.partition("/")[0] == _RATE and len(optimizers) == 1:
        whole = f"{next(iter(optimizers))}/{name}"
    found = {key: part for key, part in known.items() if _is_within(key, whole)}
    if not found:
        rates = [f"{it}/{_RATE}" for it in optimizers]
        raise ValueError(
            f"no part of an object is named {name!r}{suggestion(name, [*known, *rates])}"
        )
    return found


def tensors_of(modules: Modules, name: str) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers called ``name``, or in the module of that name, by name.

    Raises:
        ValueError: If there are none.
    """
    found = parts_of(modules, {}, name)
    return {key: part.tensor for key, part in found.items() if isinstance(part, TensorPart)}


def assigner(
    modules: Modules, optimizers: Optimizers, values: Mapping[str, Any]
) -> Callable[[], None]:
    """Return a function that assigns ``values``, by the names of parts.

    Raises:
        ValueError: If there is no such part, or if a value does not fit.
    """
    parts = {name: parts_of(modules, optimizers, name) for name in values}
    if several := [name for name, found in parts.items() if len(found) > 1]:
        raise ValueError(f"{several[0]!r} has several parts, {[*parts[several[0]]]}: name one")
    new = [
        (part, part.converted(name, values[name]))
        for name, found in parts.items()
        for part in found.values()
    ]

    def assign() -> None:
        for part, value in new:
            part.assign(value)

    return assign


def _is_within(key: str, whole: str) -> bool:
    separators = "./" if "/" in whole else "/"  # "model/conv1.weight" is in "model/conv1"
    return key == whole or (key.startswith(whole) and key[len(whole)] in separators)


def _parts(modules: Modules, optimizers: Optimizers) -> Iterator[tuple[str, Part]]:
    for owner, module in modules.items():
        for path, parameter in module.named_parameters(remove_duplicate=False):
            yield f"{owner}/{path}", TensorPart(parameter)
        for path, buffer in module.named_buffers(remove_duplicate=False):
            yield f"{owner}/{path}", TensorPart(buffer)
    for owner, optimizer in optimizers.items():
        for number, group in enumerate(optimizer.param_groups):
            rate = group["lr"]
            part = TensorPart(rate) if isinstance(rate, torch.Tensor) else RatePart(group)
            yield f"{owner}/{_RATE}/{number}", part

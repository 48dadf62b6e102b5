"""State dicts of torch in checkpoints: tensors by name, and the rest for JSON; ``export``."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from runhooks import arguments
from runhooks.arrays.torch import from_numpy, is_distributed
from runhooks.checkpoint import read_checkpoint
from runhooks.checkpoint.best import Choice, Mode
from runhooks.checkpoint.places import place_of
from runhooks.engines.torch.shards import whole_here
from runhooks.graph.objects import (
    MODULE_VERSIONS,
    OBJECT_STATES,
    PENDING,
    RANDOM_STATES,
    STANDS_FOR_ARRAY,
    Arrays,
)

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def split(
    name: str, state: Mapping[str, Any], *, in_parts: bool = False
) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the tensors of a state by name, and the rest, where their names stand for them.

    Args:
        name: The name of the object; its tensors are named ``"<name>/<path>"``.
        state: Its state dict. A tensor that occurs twice, as a shared parameter does, comes once.
        in_parts: Whether each rank saves what it has of a tensor that several ranks hold.

    Raises:
        TypeError, ValueError: For what cannot be saved; the error names it.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[Any, str] = {}

    def rest(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            value = whole_here(value)
            if not (in_parts and is_distributed(value)):
                check(name, value)
            seen = names.setdefault(_memory(value, name), name)
            if seen == name and name in tensors:
                raise ValueError(f"two tensors of one state have the path {name!r}: rename a key")
            tensors[seen] = value
            return STANDS_FOR_ARRAY, seen
        if type(value) in (dict, OrderedDict, Counter):
            return type(value)({key: rest(it, f"{name}/{key}") for key, it in value.items()})
        if type(value) in (list, tuple):
            return type(value)(rest(it, f"{name}/{index}") for index, it in enumerate(value))
        return value

    whole = rest(dict(state), name)
    # It says which version of a module's class a state is of.
    metadata = getattr(state, "_metadata", None)
    if metadata is None:
        return tensors, {"state": whole}
    return tensors, {
        "state": whole,
        MODULE_VERSIONS: {key: dict(it) for key, it in metadata.items()},
    }


def join(saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the state dict that ``split`` has split; KeyError if ``tensors`` lacks one."""

    def whole(value: Any) -> Any:
        if type(value) is tuple and value[:1] == (STANDS_FOR_ARRAY,):
            return tensors[value[1]]
        if type(value) in (dict, OrderedDict, Counter):
            return type(value)({key: whole(it) for key, it in value.items()})
        if type(value) in (list, tuple):
            return type(value)(whole(it) for it in value)
        return value

    state = whole(saved["state"])
    if MODULE_VERSIONS not in saved:
        return state  # type: ignore[no-any-return]
    ordered = OrderedDict(state)
    metadata = OrderedDict((key, dict(it)) for key, it in saved[MODULE_VERSIONS].items())
    setattr(ordered, "_metadata", metadata)  # noqa: B010 - what torch itself does
    return ordered


def names_in(saved: Any) -> Iterator[str]:
    """Yield the names of the tensors in the rest of a state, as often as they occur."""
    if type(saved) is tuple and saved[:1] == (STANDS_FOR_ARRAY,):
        yield saved[1]
        return
    inner = saved.values() if isinstance(saved, dict) else saved
    if isinstance(saved, dict | list | tuple):
        for item in inner:
            yield from names_in(item)


def check(name: str, tensor: torch.Tensor) -> None:
    """Raise TypeError for a tensor whose values are not all in this process."""
    kind = None
    if torch.nn.parameter.is_lazy(tensor):
        kind = "is not initialized: run the module once before"
    elif type(tensor) not in _PLAIN:
        kind = f"is a {type(tensor).__name__}, of which this process may hold a part only"
    elif tensor.is_meta:
        kind = "is on the meta device and has no values: make some with module.to_empty(device=...)"
    elif tensor.layout != torch.strided or tensor.is_quantized:
        kind = f"is of {tensor.layout}, and not a plain dense tensor"
    if kind is not None:
        raise TypeError(f"{name!r} cannot be saved in a checkpoint: it {kind}")


def _memory(tensor: Any, name: str) -> Any:
    if tensor.numel() == 0:
        return name
    if is_distributed(tensor):
        tensor = tensor.to_local()
    place = tensor.data_ptr(), tensor.device, tensor.dtype
    return *place, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()


def state_dicts(arrays: Arrays, states: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the state dicts of the user's objects in a checkpoint, by name."""
    named = {
        k.removeprefix(OBJECT_STATES): v for k, v in states.items() if k.startswith(OBJECT_STATES)
    }
    return {
        name: join(saved, {it: from_numpy(arrays[it]) for it in names_in(saved)})
        for name, saved in named.items()
        if name not in (RANDOM_STATES, PENDING)
    }


def export(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    best: str | None = None,
    mode: Mode | None = None,
) -> None:
    """Write the state dicts of the objects in a checkpoint to a file that ``torch.load`` reads.

    ``torch.load(path, weights_only=True)["model"]`` is what ``model.load_state_dict`` takes, and
    ``["optimizer"]`` has the learning rates and all else that is no array: ``rh.export`` writes
    arrays alone. Arrays and numbers of NumPy become tensors and plain numbers. The random states
    are left out.

    Args:
        source: A checkpoint, or a directory of them.
        path: The file to write.
        step: As for ``rh.load``.
        best: As for ``rh.load``.
        mode: As for ``rh.load``.

    Raises:
        NotFoundError: If there is no such checkpoint.
        DataLossError: If it is damaged.
        ValueError: If it was not saved from a graph of ``rh.torch``.
        TypeError: If an argument has the wrong type.
    """
    arguments.given(source=source, path=path)
    arguments.directory(source=source, path=path)
    snapshot = Choice(step, best, mode).read(place_of(source), read_checkpoint)
    found = state_dicts(snapshot.arrays, snapshot.states)
    objects = {name: _plain(state) for name, state in found.items()}
    if not objects:
        raise ValueError(
            f"source must be of a graph of rh.torch, got {str(source)!r} without objects"
        )
    torch.save(objects, path)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_numpy(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    return value

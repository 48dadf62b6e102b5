"""State dicts of torch as a checkpoint keeps them: tensors by name, and the rest for JSON."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

#: In the rest, ``(TENSOR, name)`` stands where the tensor of that name was.
TENSOR = "runhooks.tensor"

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def taken_apart(part: str, state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], Any]:
    """The tensors of ``state`` by name, and ``state`` with ``(TENSOR, name)`` in their places.

    Names are ``"<part>/<path>"``. A tensor that stands in it twice, as a shared parameter does,
    comes once. Raises TypeError or ValueError for what cannot be saved, with its name.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[Any, str] = {}

    def rest(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            check(name, value)
            seen = names.setdefault(_memory(value, name), name)
            if seen == name and name in tensors:
                raise ValueError(f"two tensors of one state have the path {name!r}: rename a key")
            tensors[seen] = value
            return TENSOR, seen
        if type(value) in (dict, OrderedDict, Counter):
            return type(value)({key: rest(it, f"{name}/{key}") for key, it in value.items()})
        if type(value) in (list, tuple):
            return type(value)(rest(it, f"{name}/{index}") for index, it in enumerate(value))
        return value

    whole = rest(dict(state), part)
    # Modules tell by it of which version of their class a state is.
    metadata = getattr(state, "_metadata", None)
    if metadata is None:
        return tensors, {"state": whole}
    return tensors, {"state": whole, "metadata": {key: dict(it) for key, it in metadata.items()}}


def put_together(saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The state of which ``saved`` is the rest; KeyError if ``tensors`` lacks one."""

    def whole(value: Any) -> Any:
        if type(value) is tuple and value[:1] == (TENSOR,):
            return tensors[value[1]]
        if type(value) in (dict, OrderedDict, Counter):
            return type(value)({key: whole(it) for key, it in value.items()})
        if type(value) in (list, tuple):
            return type(value)(whole(it) for it in value)
        return value

    state = whole(saved["state"])
    if "metadata" not in saved:
        return state  # type: ignore[no-any-return]
    ordered = OrderedDict(state)
    metadata = OrderedDict((key, dict(it)) for key, it in saved["metadata"].items())
    setattr(ordered, "_metadata", metadata)  # noqa: B010 - what torch itself does
    return ordered


def names_in(saved: Any) -> Iterator[str]:
    """The names of the tensors of which ``saved`` is the rest, as often as they stand in it."""
    if type(saved) is tuple and saved[:1] == (TENSOR,):
        yield saved[1]
        return
    inner = saved.values() if isinstance(saved, dict) else saved
    if isinstance(saved, dict | list | tuple):
        for part in inner:
            yield from names_in(part)


def check(name: str, tensor: torch.Tensor) -> None:
    """Raise TypeError for a tensor whose values are not all in this process."""
    kind = None
    if torch.nn.parameter.is_lazy(tensor):
        kind = "is not initialised: run the module once before"
    elif type(tensor) not in _PLAIN:
        kind = f"is a {type(tensor).__name__}, of which this process may hold a part only"
    elif tensor.is_meta:
        kind = "is on the meta device, and has no values: give the module some with to_empty"
    elif tensor.layout != torch.strided or tensor.is_quantized:
        kind = f"is of {tensor.layout}, and not a plain dense tensor"
    if kind is not None:
        raise TypeError(f"{name!r} cannot be saved in a checkpoint: it {kind}")


def _memory(tensor: torch.Tensor, name: str) -> Any:
    if tensor.numel() == 0:
        return name
    place = tensor.data_ptr(), tensor.device, tensor.dtype
    return *place, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()

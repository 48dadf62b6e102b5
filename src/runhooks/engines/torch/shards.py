"""Tensors that several ranks hold: what each writes to a checkpoint, and reads from one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from runhooks.arrays.shards import ArrayInMemory, ShardedArray, Share, parts_of_replicas
from runhooks.arrays.torch import ARRAYS, from_numpy, is_distributed

_WRAPPER = nn.parallel.DistributedDataParallel


def unwrapped(it: Any) -> Any:
    """Return the object that ``torch.compile`` or ``DistributedDataParallel`` has wrapped.

    What they make of a module has another name for each of its parameters.
    """
    while True:
        inner = it.module if isinstance(it, _WRAPPER) else getattr(it, "_orig_mod", it)
        if inner is it:
            return it
        it = inner


def whole_here(tensor: Any) -> Any:
    """Return ``tensor``; of a ``DTensor`` that this process alone holds, the tensor inside."""
    alone = is_distributed(tensor) and tensor.device_mesh.size() == 1
    return tensor.to_local() if alone else tensor


def sharded_tensors(
    tensors: Mapping[str, torch.Tensor], replicas: Collection[str], share: Share
) -> dict[str, ShardedArray]:
    """Return what this rank has to write of those tensors that several ranks hold.

    Args:
        tensors: All tensors by name.
        replicas: The names of those that are the same on all ranks, unless they are ``DTensor``
            objects. Each rank writes some rows of these.
        share: Which rank this is.
    """
    found = {name: ARRAYS.sharded(tensor) for name, tensor in tensors.items()}
    sharded = {name: it for name, it in found.items() if it is not None}
    same = {
        name: tensor for name, tensor in tensors.items() if name in replicas and name not in sharded
    }
    forms = {name: ARRAYS.host_form(tensor) for name, tensor in same.items()}
    return sharded | parts_of_replicas(same, forms, share)


def tensor_of(array: Any, like: torch.Tensor | None, *, copy: bool) -> torch.Tensor:
    """Return an array of a checkpoint as a tensor; a ``DTensor`` where ``like`` is one.

    Args:
        array: An array of NumPy or an ``ArraySource``, of which only what is needed is read.
        like: The tensor that it belongs to, or that has its place. None: there is none.
        copy: Whether something else may use the memory of ``array``.
    """
    if like is None or not is_distributed(like) or tuple(like.shape) != tuple(array.shape):
        return from_numpy(np.asarray(array), copy=copy)
    source = ArrayInMemory(array) if isinstance(array, np.ndarray) else array
    tensor: torch.Tensor = ARRAYS.from_source(source, like)
    return tensor


def places_of_states(
    name: str, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the prefix of the names of an optimizer's tensors and the parameter they belong to."""
    parameters = [it for group in optimizer.param_groups for it in group["params"]]
    for number, parameter in enumerate(parameters):
        yield f"{name}/state/{number}", parameter

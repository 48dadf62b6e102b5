"""How checkpoints hold objects of torch, and how steps carry values."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from runhooks.arrays import trees
from runhooks.arrays.shards import ShardedArray, Share, parts_of_replicas
from runhooks.arrays.torch import ARRAYS, PLAIN, from_numpy, is_distributed, numpy_dtype
from runhooks.graph.base import MODULE_VERSIONS, STANDS_FOR_ARRAY, stands_for_array

_log = logging.getLogger("runhooks")

_WRAPPER = nn.parallel.DistributedDataParallel


def unwrapped(it: Any) -> Any:
    """Return what ``torch.compile`` or ``DistributedDataParallel`` has wrapped."""
    while True:
        inner = it.module if isinstance(it, _WRAPPER) else getattr(it, "_orig_mod", it)
        if inner is it:
            return it
        it = inner


def whole_here(tensor: Any) -> Any:
    """Return ``tensor``; of a ``DTensor`` of this process alone, what is inside."""
    alone = is_distributed(tensor) and tensor.device_mesh.size() == 1
    return tensor.to_local() if alone else tensor


def sharded_tensors(
    tensors: Mapping[str, torch.Tensor], replicas: Collection[str], share: Share
) -> dict[str, ShardedArray]:
    """Return what this rank has to write of tensors that several hold, as all do ``replicas``."""
    found = {name: ARRAYS.sharded(tensor) for name, tensor in tensors.items()}
    sharded = {name: it for name, it in found.items() if it is not None}
    same = {name: tensors[name] for name in tensors if name in replicas and name not in sharded}
    forms = {name: ARRAYS.host_form(tensor) for name, tensor in same.items()}
    return sharded | parts_of_replicas(same, forms, share)


def tensor_of(array: Any, like: torch.Tensor | None, *, copy: bool) -> torch.Tensor:
    """Return an array of a checkpoint as a tensor, a ``DTensor`` if ``like`` is.

    ``copy``: something else may use the memory of ``array``.
    """
    if like is None or not is_distributed(like) or tuple(like.shape) != tuple(array.shape):
        plain = from_numpy(np.asarray(array), copy=False)
        # As torch does: the last bits of sums of MKL depend on that.
        return plain.clone() if copy or plain.data_ptr() % _ALIGNMENT else plain
    tensor: torch.Tensor = ARRAYS.from_source(array, like)
    return tensor


_ALIGNMENT = 64  # bytes, of each tensor that torch makes on the CPU

_CONTAINERS = (dict, OrderedDict, Counter, list, tuple)


def split(
    name: str, state: Mapping[str, Any], *, in_parts: bool = False
) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the tensors of a state by ``"<name>/<path>"``, and the rest, with names for them.

    ``in_parts``: each rank saves what it has of a tensor that several hold.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[Any, str] = {}
    values = dict(state)

    def stand_in(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = whole_here(value)
        if not (in_parts and is_distributed(value)):
            check(name, value)
        seen = names.setdefault(_memory(value, name), name)
        if seen == name and name in tensors:
            raise ValueError(f"two tensors of one state have the path {name!r}: rename a key")
        tensors[seen] = value
        strides = _own_strides(value)
        return (STANDS_FOR_ARRAY, seen) if strides is None else (STANDS_FOR_ARRAY, seen, strides)

    leaves = [stand_in(*leaf) for leaf in trees.walk(values, name, _container_of)]
    whole = trees.with_leaves(values, leaves, _container_of)
    kept = {"state": whole}
    if (metadata := getattr(state, "_metadata", None)) is not None:
        kept[MODULE_VERSIONS] = {key: dict(it) for key, it in metadata.items()}
    return tensors, kept


def join(saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Undo ``split``; KeyError if ``tensors`` lacks one."""
    made: dict[str, torch.Tensor] = {}  # those that shared memory do so again

    def in_place_of(leaf: Any) -> Any:
        if not stands_for_array(leaf):
            return leaf
        _, name, *strides = leaf
        if name not in made:
            made[name] = _laid_out(tensors[name], *strides)
        return made[name]

    state: dict[str, Any] = trees.mapped(in_place_of, saved["state"], _container_of)
    if MODULE_VERSIONS not in saved:
        return state
    ordered = OrderedDict(state)
    metadata = OrderedDict((key, dict(it)) for key, it in saved[MODULE_VERSIONS].items())
    setattr(ordered, "_metadata", metadata)  # noqa: B010 - what torch itself does
    return ordered


def names_in(saved: Mapping[str, Any]) -> list[str]:
    leaves = trees.walk(saved["state"], of=_container_of)
    return [leaf[1] for _, leaf in leaves if stands_for_array(leaf)]


def _own_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides if they fill the memory, in another order than C's.

    Some optimizers need the order of their parameters in their states.
    """
    shape, strides = tuple(tensor.shape), tensor.stride()
    # Strides of lengths of 1 say nothing, but torch passes them on.
    if is_distributed(tensor) or (tensor.is_contiguous() and 1 not in shape):
        return None
    in_c_order = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return strides if strides != in_c_order and _fill(strides, shape) else None


def _fill(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether ``strides`` reach each place of ``shape`` once."""
    count = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != count:
            return False
        count *= size
    return all(0 <= stride <= count for stride in strides)


def _laid_out(tensor: torch.Tensor, strides: Sequence[int] | None = None) -> torch.Tensor:
    shape = tuple(tensor.shape)
    if strides is None or is_distributed(tensor) or len(strides) != len(shape):
        return tensor
    if not _fill(strides, shape):  # they are of another shape
        return tensor
    return tensor.new_empty_strided(shape, tuple(strides)).copy_(tensor)


def _container_of(value: Any) -> trees.Container | None:
    is_container = type(value) in _CONTAINERS and not stands_for_array(value)
    return trees.container_of(value) if is_container else None


def check(name: str, tensor: torch.Tensor) -> None:
    """Raise TypeError for a tensor that cannot be saved."""
    kind = None
    if torch.nn.parameter.is_lazy(tensor):
        kind = "is not initialized: run the module once before"
    elif type(tensor) not in PLAIN:
        kind = f"is a {type(tensor).__name__}, and this process may hold a part only"
    elif tensor.is_meta:
        kind = "is on the meta device, without values: call module.to_empty(device=...)"
    elif tensor.layout != torch.strided or tensor.is_quantized:
        kind = f"is of {tensor.layout}, not plain and dense"
    elif not _has_numpy_dtype(tensor):
        other = "convert it to complex64" if tensor.is_complex() else "keep it as view(torch.uint8)"
        kind = f"is of {tensor.dtype}, which NumPy lacks: {other}"
    if kind is not None:
        raise TypeError(f"{name!r} cannot be saved in a checkpoint: it {kind}")


def _has_numpy_dtype(tensor: torch.Tensor) -> bool:
    if tensor.dtype == torch.complex32:  # that of ml_dtypes is too new to rely on
        return False
    try:
        numpy_dtype(tensor.dtype)
    except TypeError:
        return False
    return True


def _memory(tensor: Any, name: str) -> Any:
    if tensor.numel() == 0:
        return name
    if is_distributed(tensor):
        tensor = tensor.to_local()
    place = tensor.data_ptr(), tensor.device, tensor.dtype
    return *place, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()


SEED = "seed"  # stands for the state of a random generator


@dataclass
class StateAsDict:
    """Adapts ``get_state`` and ``set_state`` to state dicts."""

    of: Any

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.of.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if SEED in state:
            self.of.manual_seed(state[SEED])
        else:
            self.of.set_state(state["state"])


class RandomStates:
    """Those of torch (CPU and CUDA), NumPy and Python."""

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "cpu": torch.get_rng_state(),
            "numpy": np.random.get_state(legacy=False),
            "python": random.getstate(),
        }
        if torch.cuda.is_available() and cast(Any, torch.cuda).is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if SEED in state:
            torch.manual_seed(state[SEED])
            np.random.seed(state[SEED] % (1 << 32))
            random.seed(state[SEED])
            return
        torch.set_rng_state(state["cpu"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        saved = state.get("cuda", [])
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for device, device_state in enumerate(saved[:here]):
            torch.cuda.set_rng_state(device_state, device)
        if len(saved) > here:
            _log.warning(
                "the checkpoint has the random states of %d CUDA devices, and only those of %d are "
                "resumed: no more are available",
                *(len(saved), here),
            )


def takes_seed(saved: Any) -> bool:
    """Whether ``{SEED: seed}`` is a state of ``saved``."""
    of_generator = isinstance(saved, StateAsDict) and isinstance(saved.of, torch.Generator)
    return of_generator or isinstance(saved, RandomStates)


_NUMBERS: dict[type, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


def is_carried(value: Any) -> bool:
    """Whether ``value`` is made of tensors, numbers and arrays of NumPy, and not empty."""
    leaves = [leaf for _, leaf in trees.walk(value)]
    return bool(leaves) and all(map(_is_leaf, leaves))


def _is_leaf(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufc"
    return isinstance(leaf, torch.Tensor) or type(leaf) in _NUMBERS


def kept(value: Any, put: Callable[[Any], Any] | None) -> Any:
    """Return a carried value in tensors."""

    def kept_leaf(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach() if put is None else put(leaf.detach())
        if type(leaf) in _NUMBERS:
            return torch.tensor(leaf, dtype=_NUMBERS[type(leaf)], device="cpu")
        return from_numpy(np.asarray(leaf))

    return trees.mapped(kept_leaf, value)


def restorer(value: Any) -> Callable[[Any], Any] | None:
    """Return what undoes ``kept`` for such values; None: there is nothing to do."""
    restore = [_restorer(leaf) for _, leaf in trees.walk(value)]
    if all(it is None for it in restore):
        return None

    def restored(kept: Any) -> Any:
        pairs = zip(restore, trees.walk(kept), strict=True)
        return trees.with_leaves(
            kept, [leaf if it is None else it(leaf) for it, (_, leaf) in pairs]
        )

    return restored


def _restorer(leaf: Any) -> Callable[[torch.Tensor], Any] | None:
    if isinstance(leaf, torch.Tensor):
        return None
    if type(leaf) in _NUMBERS:
        return torch.Tensor.item
    if isinstance(leaf, np.generic):
        return lambda tensor: ARRAYS.to_numpy(tensor)[()]
    return ARRAYS.to_numpy

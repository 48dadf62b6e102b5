"""States of hooks and inputs as JSON, and beside it the bytes of the arrays in them.

What JSON has stands as it is. Anything else is an object of one key, which begins with ``$``:

    {"$tuple": [...]}  {"$bytes": "<base64>"}  {"$scalar": ["<f4", 0.5]}
    {"$dict": [[key, value], ...]}             one with other keys than str, or with such a key
    {"$ordered": [[key, value], ...]}          an OrderedDict
    {"$counter": [[key, value], ...]}          a Counter
    {"$array": ["0", "numpy", "<f4", [2, 3]]}  entry, whose it is, dtype and shape
"""

from __future__ import annotations

import base64
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.engines.packed import Packed, dtype_name, dtype_named, pack, unpack

_PLAIN = (str, int, float, bool, NoneType)


class EncodedStates(NamedTuple):
    """States as bytes: ``text``, which is JSON, and the bytes of each array by its entry in it."""

    text: bytes
    arrays: dict[str, NDArray[np.uint8]]


def encode(states: Mapping[str, Any]) -> EncodedStates:
    """``states`` as bytes, which no later change of them changes.

    Raises TypeError naming the key of any value that would not come back as what it is.
    """
    arrays: dict[str, NDArray[np.uint8]] = {}
    text = json.dumps(_plain(dict(states), "", arrays))
    return EncodedStates(text.encode(), arrays)


def decode(encoded: EncodedStates) -> dict[str, Any]:
    """The states. Raises ValueError if they are not JSON, ImportError naming what they need."""

    def from_object(value: dict[str, Any]) -> Any:
        if len(value) != 1:
            return value
        ((mark, content),) = value.items()
        if mark == "$array":
            entry, kind, dtype, shape = content
            return unpack(Packed(kind, dtype, tuple(shape), encoded.arrays[entry].tobytes()))
        return _FROM_MARK[mark](content) if mark in _FROM_MARK else value

    states: dict[str, Any] = json.loads(encoded.text, object_hook=from_object)
    return states


def _plain(value: Any, key: str, arrays: dict[str, NDArray[np.uint8]]) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) is dict and all(type(name) is str and name[:1] != "$" for name in value):
        return {name: _plain(part, _at(key, name), arrays) for name, part in value.items()}
    if type(value) in _MAPPINGS:
        return {
            _MAPPINGS[type(value)]: [_pair(name, part, key, arrays) for name, part in value.items()]
        }
    if type(value) in (list, tuple):
        parts = [_plain(part, _at(key, index), arrays) for index, part in enumerate(value)]
        return parts if type(value) is list else {"$tuple": parts}
    if type(value) is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.generic) and type(value.item()) in _PLAIN[1:4]:
        return {"$scalar": [dtype_name(value.dtype), value.item()]}
    packed = pack(value)
    if packed is None:
        raise TypeError(
            f"state {key!r} is a {_kind(value)}, which a checkpoint cannot hold: a state is made "
            "of dict, list, tuple, str, bytes, int, float, bool, None, of numbers and arrays of "
            "NumPy, and of arrays of torch and JAX"
        )
    entry = str(len(arrays))
    arrays[entry] = np.frombuffer(packed.data, np.uint8)
    return {"$array": [entry, packed.kind, packed.dtype, packed.shape]}


def _pair(name: Any, part: Any, key: str, arrays: dict[str, NDArray[np.uint8]]) -> list[Any]:
    return [_plain_key(name, key), _plain(part, _at(key, name), arrays)]


def _plain_key(name: Any, key: str) -> Any:
    if type(name) is tuple:
        return {"$tuple": [_plain_key(part, key) for part in name]}
    if type(name) not in (*_PLAIN, bytes):
        raise TypeError(
            f"state {key!r} has the key {name!r}, which a checkpoint cannot hold: keys are str, "
            "bytes, int, float, bool, None, and tuples of these"
        )
    return _plain(name, key, {})


def _at(key: str, name: Any) -> str:
    return f"{key}/{name}" if key else str(name)


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} of {dtype}"


_MAPPINGS: dict[type, str] = {dict: "$dict", OrderedDict: "$ordered", Counter: "$counter"}

_FROM_MARK: dict[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    "$bytes": base64.b64decode,
    "$scalar": lambda value: dtype_named(value[0]).type(value[1]),
    "$dict": dict,
    "$ordered": OrderedDict,
    "$counter": lambda pairs: Counter(dict(pairs)),
}

"""States of hooks and inputs as JSON, with the bytes of the arrays in them beside it.

JSON's own types are left as they are. Anything else is an object of one key that begins with ``$``:

    {"$tuple": [...]}  {"$bytes": "<base64>"}
    {"$dict": [[key, value], ...]}             one with other keys than str, or with such a key
    {"$ordered": [[key, value], ...]}          an OrderedDict
    {"$versioned": [versions, [key, value], ...]}  one with the versions of modules, as torch makes
    {"$counter": [[key, value], ...]}          a Counter
    {"$array": ["0", "numpy", "<f4", [2, 3]]}  entry, library, dtype and shape
    {"$scalar": ["<f4", "<base64>"]}           a scalar of NumPy
    {"$int": "<hex>"}                          one of more digits than Python reads
    {"$str": "<base64>"}                       one with lone surrogates, as UTF-8 has none
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import Packed, dtype_name, dtype_named
from runhooks.arrays.registry import library_of, unpack
from runhooks.checkpoint.files import printable
from runhooks.checkpoint.tensors import is_unicode

_MOST_INT_BITS = 2000  # Python never reads fewer than 640 digits
_MOST_LEVELS = 100  # each takes up to three of JSON's, of which Python reads about 1000
_DTYPE = re.compile(r"[<>|=]?[\w./-]{1,40}(\[\w+\])?", re.ASCII)
_VERSIONS = "_metadata"  # an attribute of torch's state_dict
_WITH_SURROGATES = ("utf-8", "surrogatepass")


class EncodedStates(NamedTuple):
    """States as ``text``, which is JSON, and the bytes of arrays by their entry in it."""

    text: bytes
    arrays: dict[str, NDArray[np.uint8]]


def encode(states: Mapping[str, Any]) -> EncodedStates:
    """Return ``states`` as bytes, which later changes do not reach.

    Raises TypeError or ValueError for what would not come back as it is.
    """
    encoder = _Encoder()
    text = json.dumps(encoder.value(dict(states)))
    return EncodedStates(text.encode(), encoder.arrays)


def decode(encoded: EncodedStates) -> dict[str, Any]:
    """Return the states. Raises ValueError if they make no sense, ImportError."""
    unused = dict(encoded.arrays)

    def array(entry: str, library: str, dtype: str, shape: list[int]) -> Any:
        # Once each: or a small file could fill the memory.
        packed = Packed(library, _checked(dtype), tuple(shape), unused.pop(entry).tobytes())
        if not _has_data(packed):
            raise ValueError(f"an array of shape {shape} has no data")
        return unpack(packed)

    return _loaded(encoded.text, array)


def without_arrays(text: bytes) -> dict[str, Any]:
    """Return the states with None for each array."""
    return _loaded(text, lambda *_: None)


class _Encoder:
    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[np.uint8]] = {}
        self._keys: list[Any] = []  # around a value, from the outside

    def value(self, value: Any) -> Any:
        if type(value) in _CONTAINERS:
            return self._container(value)
        if type(value) in _LEAVES:
            return _LEAVES[type(value)](value)
        if isinstance(value, np.generic) and _is_scalar(value.dtype):
            return {"$scalar": [dtype_name(value.dtype), _base64(value.tobytes())]}
        packed = self._packed(value)
        entry = str(len(self.arrays))
        self.arrays[entry] = np.frombuffer(packed.data, np.uint8)
        return {"$array": [entry, packed.kind, packed.dtype, packed.shape]}

    def _container(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            items = [self._at(index, it) for index, it in enumerate(value)]
            return items if type(value) is list else {"$tuple": items}
        if type(value) is dict and all(map(_is_plain_key, value)):
            return {name: self._at(name, it) for name, it in value.items()}
        pairs = [[self._key(name, 0), self._at(name, it)] for name, it in value.items()]
        if type(value) is OrderedDict and _VERSIONS in vars(value):
            return {"$versioned": [self._at(_VERSIONS, vars(value)[_VERSIONS]), *pairs]}
        return {_MARKS[type(value)]: pairs}

    def _at(self, key: Any, value: Any) -> Any:
        if len(self._keys) == _MOST_LEVELS:
            raise self._too_deep()
        self._keys.append(key)
        try:
            return self.value(value)
        finally:
            self._keys.pop()

    def _key(self, name: Any, level: int) -> Any:
        if level == _MOST_LEVELS // 2:
            raise self._too_deep()
        if type(name) is tuple:
            return {"$tuple": [self._key(it, level + 1) for it in name]}
        if type(name) not in _LEAVES:
            raise TypeError(
                f"state {self._shown()} has the key {name!r}, which a checkpoint cannot hold: keys "
                "are str, bytes, int, float, bool, None, and tuples of these"
            )
        return _LEAVES[type(name)](name)

    def _packed(self, value: Any) -> Packed:
        dtype = getattr(value, "dtype", None)
        kind = f"a {type(value).__name__}" + (f" of {dtype}" if dtype is not None else "")
        try:
            packed = library_of(value).pack(value)
        except Exception as error:
            raise TypeError(
                f"state {self._shown()} is {kind}; saving it failed: {error}"
            ) from error
        if packed is None or not _has_data(packed):
            raise TypeError(
                f"state {self._shown()} is {kind}, which a checkpoint cannot hold: a state is made "
                "of dict, list, tuple, str, bytes, int, float, bool, None, of numbers and arrays "
                "of NumPy, and of arrays of torch and JAX"
            )
        return packed

    def _too_deep(self) -> ValueError:
        return ValueError(
            f"state {self._shown()} contains itself, or is nested more than {_MOST_LEVELS} levels "
            "deep, which a checkpoint cannot hold: make it flat"
        )

    def _shown(self) -> str:
        shown = "/".join(map(_short, self._keys))
        return repr(shown if len(shown) < 200 else f"{shown[:100]}...")


def _short(key: Any) -> str:
    try:
        return str(key)[:100]
    except ValueError:  # an int of too many digits
        return hex(key)[:100]


def _loaded(text: bytes, array: Callable[..., Any]) -> dict[str, Any]:
    def from_object(value: dict[str, Any]) -> Any:
        if len(value) != 1:
            return value
        ((mark, content),) = value.items()
        if mark == "$array":
            return array(*content)
        return _FROM_MARK[mark](content) if mark in _FROM_MARK else value

    try:
        states = json.loads(text, object_hook=from_object)
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        # NumPy and frameworks raise all kinds.
        raise ValueError(f"{type(error).__name__}: {printable(error)}") from error
    if type(states) is not dict or any(type(name) is not str for name in states):
        raise ValueError("it is not a mapping of names to states")
    return states


def _checked(dtype: Any) -> str:
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"{dtype!r} is not the name of a dtype")
    return dtype


def _has_data(packed: Packed) -> bool:
    return bool(packed.data) or 0 in packed.shape


def _scalar(content: Any) -> Any:
    dtype, data = dtype_named(_checked(content[0])), base64.b64decode(content[1])
    if not _is_scalar(dtype) or len(data) != dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are not a {dtype}")
    return np.ndarray((), dtype, data)[()]


def _is_scalar(dtype: np.dtype[Any]) -> bool:
    return not issubclass(dtype.type, np.flexible | np.object_)


def _versioned(content: list[Any]) -> OrderedDict[Any, Any]:
    versions, *pairs = content
    state = OrderedDict(pairs)
    setattr(state, _VERSIONS, versions)
    return state


def _string(value: str) -> Any:
    return value if is_unicode(value) else {"$str": _base64(value.encode(*_WITH_SURROGATES))}


def _integer(value: int) -> Any:
    return value if value.bit_length() <= _MOST_INT_BITS else {"$int": f"{value:x}"}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _is_plain_key(name: Any) -> bool:
    return type(name) is str and name[:1] != "$" and is_unicode(name)


_MARKS: dict[type, str] = {dict: "$dict", OrderedDict: "$ordered", Counter: "$counter"}
_CONTAINERS = frozenset({list, tuple, *_MARKS})

_LEAVES: dict[type, Callable[[Any], Any]] = {
    str: _string,
    int: _integer,
    **dict.fromkeys((float, bool, NoneType), lambda value: value),
    bytes: lambda value: {"$bytes": _base64(value)},
}

_FROM_MARK: dict[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    "$bytes": base64.b64decode,
    "$scalar": _scalar,
    "$int": lambda text: int(text, 16),
    "$str": lambda text: base64.b64decode(text).decode(*_WITH_SURROGATES),
    "$dict": dict,
    "$ordered": OrderedDict,
    "$versioned": _versioned,
    "$counter": lambda pairs: Counter(dict(pairs)),
}

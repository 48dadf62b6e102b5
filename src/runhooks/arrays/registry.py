"""Which adapter an array belongs to. That of a framework is imported with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from runhooks.arrays.array_library import ArrayLibrary, Flat, GeneratorAccess, Packed
from runhooks.arrays.numpy import ARRAYS

_FRAMEWORKS = ("torch", "jax", "tensorflow")
_FILES = {".pt": "torch", ".pth": "torch"}

NUMPY = ARRAYS


class _NoLibrary(ArrayLibrary):
    """The library of lists, and of arrays that no adapter owns."""

    name = ""

    def owns(self, kind: type) -> bool:
        return True

    def text(self, array: Any) -> str:
        return str(array.numpy() if callable(getattr(array, "numpy", None)) else array)

    def pack(self, array: Any) -> Packed | None:
        return None


NO_LIBRARY = _NoLibrary()
_registered: list[ArrayLibrary] = []
_by_type: dict[type, ArrayLibrary] = {}


def library_of(value: Any) -> ArrayLibrary:
    """Return the adapter that owns ``value``, or ``NO_LIBRARY``."""
    library = _by_type.get(type(value))
    return _found(type(value)) if library is None else library


def library_describing(value: Any) -> ArrayLibrary:
    """Return the adapter that owns ``value``, or for which it describes an array."""
    library = library_of(value)
    if library is not NO_LIBRARY:
        return library
    return next((it for it in _known() if it.describes(type(value))), NO_LIBRARY)


def flattened(tree: Any) -> Flat | None:
    """Return ``tree`` flattened by the first adapter that knows its class, or None."""
    return next(filter(None, (library.flatten(tree) for library in _known())), None)


def global_generators() -> dict[str, Any]:
    return {name: it for library in _known() for name, it in library.generators().items()}


def generator_state(generator: Any) -> GeneratorAccess | None:
    found = (library.generator_state(generator) for library in _known())
    return next(filter(None, found), None)


def library_of_file(suffix: str) -> ArrayLibrary | None:
    """Return the adapter of files that end in ``suffix``, or None."""
    return _adapter(_FILES[suffix]) if suffix in _FILES else None


def unpack(packed: Packed) -> Any:
    """Return the array; ImportError if its library is not registered."""
    name = packed.kind.partition(" ")[0]
    for library in (*_registered, NUMPY):
        if library.name == name:
            return library.unpack(packed)
    if name not in _FRAMEWORKS:
        raise ImportError(
            f"arrays of {name!r} cannot be restored: give its adapter to runhooks.arrays.register"
        )
    return _adapter(name).unpack(packed)


def register(library: ArrayLibrary) -> None:
    """Let summaries, hooks and checkpoints accept the arrays of ``library``, before all others.

    Raises:
        TypeError: It is not an ``ArrayLibrary``.
        ValueError: Its name is taken, or is not one word.
    """
    if not isinstance(library, ArrayLibrary):
        raise TypeError(f"library must be an ArrayLibrary, got {library!r}")
    name = library.name
    if name.split() != [name]:
        raise ValueError(f"the name of an array library must be one word, got {name!r}")
    if name in (NUMPY.name, *_FRAMEWORKS, *(known.name for known in _registered)):
        raise ValueError(f"an array library named {name!r} is registered already")
    _registered.append(library)
    _by_type.clear()


def _found(kind: type) -> ArrayLibrary:
    library = next(library for library in _known() if library.owns(kind))
    _by_type[kind] = library
    return library


def _known() -> Iterator[ArrayLibrary]:
    yield from _registered
    yield NUMPY
    yield from (_adapter(name) for name in _FRAMEWORKS if sys.modules.get(name))
    yield NO_LIBRARY


def _adapter(name: str) -> ArrayLibrary:
    library: ArrayLibrary = import_module(f"runhooks.arrays.{name}").ARRAYS
    return library

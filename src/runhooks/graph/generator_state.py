"""``GeneratorState``: the state of a random generator of NumPy or Python, for checkpoints."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import random

    Generator: TypeAlias = np.random.Generator | np.random.RandomState | random.Random


class GeneratorState:
    """A random generator as an endless iterable that gives it, with a state.

    Args:
        generator: A ``Generator``, or ``numpy.random`` or ``random``, whose functions share one.

    Raises:
        NotImplementedError: If it has no state, as a ``random.SystemRandom``.
    """

    def __init__(self, generator: Generator | ModuleType) -> None:
        self._generator = generator
        self._get, self._set = _methods(generator)
        self._get()

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self._generator)

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._get()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._set(state["state"])


def is_generator(value: Any) -> bool:
    """Return whether ``value`` is a random generator of NumPy or Python."""
    return any(isinstance(value, getattr(module, name)) for module, name in _kinds())


def has_generator_state(value: Any) -> bool:
    """Return whether ``GeneratorState`` takes ``value``: a generator, or a module that has one."""
    return is_generator(value) or any(value is module for module, _ in _kinds())


def _kinds() -> Iterator[tuple[ModuleType, str]]:
    # What a module has made can only be there once it is imported; importing it takes a while.
    for module, *names in (("numpy.random", "Generator", "RandomState"), ("random", "Random")):
        if module in sys.modules:
            yield from ((sys.modules[module], name) for name in names)


def _methods(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return lambda: bits.state, partial(setattr, bits, "state")
    if isinstance(generator, np.random.RandomState) or generator is np.random:
        return generator.get_state, generator.set_state
    return generator.getstate, generator.setstate

"""Random generators of NumPy, Python and of loaders, and their states."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from runhooks.arrays.array_library import GeneratorAccess
from runhooks.arrays.registry import generator_state, global_generators

if TYPE_CHECKING:
    import random

    Generator: TypeAlias = np.random.Generator | np.random.RandomState | random.Random


class GeneratorState:
    """A random generator as an endless iterable that gives it, with a state.

    A module stands for the one that its functions share. NotImplementedError: it has no state.
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
    return any(isinstance(value, getattr(module, name)) for module, name in _kinds())


def has_generator_state(value: Any) -> bool:
    return is_generator(value) or any(value is module for module, _ in _kinds())


def _kinds() -> Iterator[tuple[ModuleType, str]]:
    # To import them takes a while; without them there are none.
    for module, *names in (("numpy.random", "Generator", "RandomState"), ("random", "Random")):
        if (found := sys.modules.get(module)) is not None:
            defined = vars(found)  # another thread may be importing the module
            yield from ((found, name) for name in names if name in defined)


def _methods(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return lambda: bits.state, partial(setattr, bits, "state")
    if isinstance(generator, np.random.RandomState) or generator is np.random:
        return partial(generator.get_state, legacy=False), generator.set_state
    return generator.getstate, generator.setstate


_CONTAINERS = (list, tuple, range, dict, str, bytes, np.ndarray)

States = dict[str, Any]


class InputGenerators:
    """The generators that programs share, and the ``own_generators`` of an iterable.

    A loader draws the order of an epoch when that begins. So a position holds, of those that have
    moved, the states at some moments: ``{"torch": {"epoch": ..., "first": ..., "now": ...}}``.
    """

    def __init__(self, elements: Any) -> None:
        own = own_generators(elements)
        self._access = {**_shared(), **own}
        self._opened = self.read()
        self._moments = {"epoch": self._opened}
        self._kept = set(own)

    def note(self, moment: str) -> None:
        """Note the states before iteration, ``"epoch"``, or the first element, ``"first"``."""
        kept = {} if moment == "epoch" else self._moments
        self._moments = {**kept, moment: self.read()}

    def position(self, others: Mapping[str, States]) -> dict[str, States]:
        """Return the states of those that have moved; ``others`` are of other moments."""
        moments = {**self._moments, **others, "now": self.read()}
        for name in self._access.keys() - self._kept:
            if any(not _same(states[name], self._opened[name]) for states in moments.values()):
                self._kept.add(name)
        return {
            name: {moment: states[name] for moment, states in moments.items()}
            for name in sorted(self._kept & self._access.keys())
        }

    def go_to(self, position: Mapping[str, States], moment: str = "now") -> None:
        self._kept.update(position)
        for name, states in position.items():
            if name in self._access and moment in states:
                self._access[name].set(states[moment])

    def read(self) -> States:
        return {name: access.get() for name, access in self._access.items()}


def own_generators(elements: Any) -> dict[str, GeneratorAccess]:
    """Return the generators that are attributes of ``elements``, its samplers or its data set."""
    found: dict[str, GeneratorAccess] = {}
    seen: set[int] = set()
    for path, holder in holders(elements):
        for name, value in getattr(holder, "__dict__", {}).items():
            access = _access(value)
            if access is not None and id(value) not in seen:
                seen.add(id(value))
                found[f"{path}{name}"] = access
    return found


def is_container(elements: object) -> TypeGuard[Iterable[Any]]:
    """Return whether to iterate ``elements`` draws and changes nothing."""
    return type(elements) in _CONTAINERS


def generators_of(elements: Any) -> InputGenerators | None:
    """None: a container draws nothing."""
    return None if is_container(elements) else InputGenerators(elements)


def shared_states() -> States:
    return {name: access.get() for name, access in _shared().items()}


def have_moved(before: States) -> bool:
    """Return whether somebody has drawn since ``before``, of ``shared_states``."""
    now = shared_states()
    return any(not _same(states, now[name]) for name, states in before.items())


def remembered_generators(others: Iterable[Any] = ()) -> Callable[[], None]:
    """Return what puts the generators that programs share, and ``others``, back."""
    own = [access for it in others if (access := _access(it)) is not None]
    states = [(access, access.get()) for access in (*_shared().values(), *own)]

    def put_back() -> None:
        for access, state in states:
            access.set(state)

    return put_back


@contextmanager
def generators_left_alone(others: Iterable[Any] = ()) -> Iterator[None]:
    put_back = remembered_generators(others)
    try:
        yield
    finally:
        put_back()


def called_ahead(make: Callable[[], Any]) -> Any:
    """Return ``make()``, and put the generators it uses back, as it will be called again."""
    with generators_left_alone(generators_used(make).values()):
        return make()


def holders(elements: Any) -> Iterator[tuple[str, Any]]:
    """Yield ``elements``, and the samplers and the data set of a loader, with paths."""
    yield "", elements
    batch_sampler = getattr(elements, "batch_sampler", None)
    yield "sampler.", getattr(elements, "sampler", None)
    yield "batch_sampler.", batch_sampler
    yield "batch_sampler.sampler.", getattr(batch_sampler, "sampler", None)
    yield "dataset.", getattr(elements, "dataset", None)


def generators_used(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the random generators among the variables that ``fn`` uses, and their attributes.

    Those are arguments of a ``partial``, attributes of a method's object, and what ``fn``, or a
    function of its module that it calls, closes over or finds there.
    """
    found: dict[str, Any] = {}
    waiting, seen = [fn], {id(fn)}
    outer = _function(fn)
    while waiting:
        for path, value in _variables(waiting.pop()):
            if id(value) in seen or isinstance(value, ModuleType | type):
                continue
            seen.add(id(value))
            inner = _function(value)
            if inner is not None and outer is not None and inner.__globals__ is outer.__globals__:
                waiting.append(value)
            own = getattr(value, "__dict__", {}).items()
            for name, it in ((path, value), *((f"{path}.{name}", it) for name, it in own)):
                if _access(it) is not None and not any(it is other for other in found.values()):
                    found[name if name not in found else f"{name} {len(found)}"] = it
    return found


def _function(fn: Any) -> FunctionType | None:
    while isinstance(fn, partial):
        fn = fn.func
    if isinstance(fn, MethodType):
        fn = fn.__func__
    return fn if isinstance(fn, FunctionType) else None


def _variables(fn: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(fn, partial):
        yield from ((f"argument {index}", it) for index, it in enumerate(fn.args))
        yield from fn.keywords.items()
        yield from _variables(fn.func)
        return
    if isinstance(fn, MethodType):
        yield "self", fn.__self__
    if (inner := _function(fn)) is not None:
        used = inspect.getclosurevars(inner)
        yield from {**used.globals, **used.nonlocals, **(inner.__kwdefaults__ or {})}.items()


def _shared() -> dict[str, GeneratorAccess]:
    import random  # takes a while

    found = {name: generator_state(it) for name, it in global_generators().items()}
    return {
        "numpy": GeneratorAccess(*_methods(np.random)),
        "python": GeneratorAccess(*_methods(random)),
        **{name: access for name, access in found.items() if access is not None},
    }


def _access(value: Any) -> GeneratorAccess | None:
    if has_generator_state(value):
        try:
            state = GeneratorState(value)
        except NotImplementedError:  # as a random.SystemRandom
            return None
        return GeneratorAccess(state.state_dict, state.load_state_dict)
    return generator_state(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)

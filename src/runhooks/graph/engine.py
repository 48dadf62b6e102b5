"""``Engine``: a framework that computes graphs of runhooks, and how one is found by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import numpy as np

from runhooks.arrays import ArrayLibrary
from runhooks.arrays.shards import ArraySource
from runhooks.graph.base import Framework
from runhooks.graph.nodes import Variable
from runhooks.graph.plan import Body

Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST = 1000


class Kept(dict[Key, Value]):
    """A dict of what is made the first time that it is asked for."""

    def get_or_make(self, key: Any, make: Callable[[], Value]) -> Value:
        """Return the value of ``key``, made now if there is none.

        The value of an unhashable key is not kept; the run reports what is wrong with such a key.
        """
        try:
            return self[key]
        except (KeyError, TypeError):
            pass  # or an error of make() would seem to come of this one
        value = make()
        with suppress(TypeError):
            self[key] = value
        return value


class BoundedCache(Kept[Key, Value]):
    """One that keeps the thousand items that were added last.

    A loop asks for the same few things again and again. One that never does, as
    ``session.run({f"w/{i}": w})``, would otherwise fill the memory.
    """

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread has been faster
                del self[next(iter(self))]


class Compilation:
    """Something that may have been compiled; ``since``: when that began, None if it was not."""

    since: float | None = None


class BoundBody:
    """What an engine has made of a body, for variables of known structures.

    Attributes:
        step: Takes the parts of the values of ``body.assigned`` and of ``body.kept``, and the
            values of ``body.given``, one after the other. Returns a list of the new parts of
            ``body.assigned``, and one thing more, which ``fetched`` takes. Changes nothing.
            Raises ``AssignedError`` if it fails after old values were given up.
        compilation: ``since`` is not None if something was compiled that is to be logged.
    """

    def __init__(
        self, step: Callable[..., list[Any]], note: Callable[[Exception], None] | None = None
    ) -> None:
        self.step = step
        self._note = note
        self.compilation = Compilation()

    def fetched(self, new: list[Any], rest: Any) -> Sequence[Any]:
        """Return the values of ``body.fetches``."""
        return rest  # type: ignore[no-any-return]

    def explain(self, error: Exception, args: Sequence[Any]) -> None:
        """Note what is known about an ``error`` out of ``step(*args)``, or raise a clearer one."""
        if self._note is not None:
            self._note(error)

    def log(self) -> None:
        """Log what was compiled."""


class AssignedError(Exception):
    """A run has failed after it gave up the old values of variables.

    Attributes:
        new: The new values that are there, as their parts.
        error: The error to raise.
    """

    def __init__(self, new: Mapping[Variable, list[Any]], error: BaseException) -> None:
        super().__init__(str(error))
        self.new = new
        self.error = error


class Engine(Framework):
    """A framework that computes the graphs of runhooks: extend it to bring another.

    ``runhooks.engines.EagerEngine`` is a base for those that call the user's functions one by one.
    A *value* is what a variable holds: a pytree of arrays. ``name`` arguments are for messages.
    """

    #: The adapter of the library whose arrays variables hold.
    arrays: ClassVar[ArrayLibrary]

    #: Whether a bound body really gives up old values where ``body.donate`` allows it.
    donates: ClassVar[bool] = False

    #: Whether ``form`` is there.
    finds_forms: ClassVar[bool] = False

    #: Puts a value that was fed or drawn where the graph computes; None: it stays where it is.
    put: Callable[[Any], Any] | None = None

    def bind(
        self, body: Body, structures: Mapping[Variable, Any], shared: BoundedCache[Any, Any]
    ) -> BoundBody:
        """Return what computes ``body`` in a session.

        Args:
            body: What a run computes.
            structures: The structures of the variables, as ``flat`` returns them.
            shared: What the engine keeps for all runs of the graph.
        """
        raise NotImplementedError

    def flat(self, value: Any) -> tuple[list[Any], Any]:
        """Return the parts of a variable's value that bound bodies take and return, and the rest.

        The rest is the structure, which stays the same. By default the value is its only part.
        """
        return [value], None

    def whole(self, structure: Any, parts: Sequence[Any]) -> Any:
        """Return the value of which ``flat`` has made these."""
        return parts[0]

    def constant(self, value: Any) -> Any:
        """Return an array among the arguments of a call, put where the engine computes."""
        return value

    def check_initial(self, name: str, value: Any) -> None:
        """Raise TypeError if a variable cannot begin with ``value``; a function is not called."""
        leaves = self.leaves(value)
        if not callable(value) or list(leaves) != [""]:
            for path, leaf in leaves.items():
                self.check_initial_leaf(name, path, leaf)

    def check_initial_leaf(self, name: str, path: str, leaf: Any) -> None:
        """Raise TypeError if ``leaf`` is neither an array nor a number."""

    def initial(self, name: str, value: Any) -> Any:
        """Return a copy of ``value`` as a variable holds it.

        Raises:
            TypeError: If it holds something other than arrays and numbers.
        """
        raise NotImplementedError

    def conform(self, name: str, old: Any, new: Any) -> Any:
        """Return ``new`` as a variable holds it.

        Raises:
            ValueError: If its structure, shapes or dtypes differ from those of ``old``.
        """
        raise NotImplementedError

    def add(self, name: str, old: Any, delta: Any) -> Any:
        """Return ``old + delta``, leaf by leaf if ``delta`` is a pytree too."""
        raise NotImplementedError

    def wide(self, leaf: Any) -> Any:
        """Return a copy of ``leaf`` to hold a moving average: of float32 if it has fewer bits."""
        raise NotImplementedError

    def average(self, old: Any, new: Any, weight: Any) -> Any:
        """Return the moving average ``old``, moved towards ``new``, in its dtype.

        Args:
            old: A leaf that ``wide`` has made.
            new: A leaf of its shape.
            weight: How far, from 0 to 1, which gives ``new``. Integers become ``new`` always.
        """
        raise NotImplementedError

    def as_like(self, old: Any, new: Any) -> Any:
        """Return the leaf ``new`` with the dtype of ``old``, where ``old`` is."""
        raise NotImplementedError

    def examples(self, *batch: Any) -> int:
        """Return how many examples a batch has: the length of its first array; 1 if it has none."""
        for part in batch:
            shape = getattr(part, "shape", None)
            if shape is None:
                leaves = self.leaves(part).values()
                shape = next((it for leaf in leaves if (it := getattr(leaf, "shape", ()))), ())
            for size in shape:
                return int(size)
        return 1

    def new_sums(self) -> Any:
        """Return the zeros in which ``add_to_sums`` adds up.

        They are the sum and what it lacks by rounding, the weight and what that lacks, if the
        engine does not override ``mean_of_sums``, too.
        """
        raise NotImplementedError

    def add_to_sums(self, name: str, sums: Any, value: Any, weight: Any) -> Any:
        """Return ``sums`` with ``value`` added as often as ``weight`` says.

        Args:
            name: The name of the value.
            sums: As ``new_sums`` or this function has returned them; they do not change.
            value: A single number.
            weight: Another.

        Raises:
            ValueError: If ``value`` is not a single number.
        """
        raise NotImplementedError

    def mean_of_sums(self, sums: Any) -> Any:
        """Return the mean that ``add_to_sums`` has added up."""
        return (sums[0] + sums[1]) / (sums[2] + sums[3])

    def integer(self, value: int) -> Any:
        """Return an integer kept on the host, such as the global step, as the engine takes it.

        Raises:
            OverflowError: If it is too large for that.
        """
        return value

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        """Return the random key of a run.

        Args:
            seed: An unsigned integer of 32 bits.
            stream: Another, which tells the keys of a graph apart.
            runs: How many runs have drawn a key before, as ``integer`` gives it.
        """
        raise NotImplementedError

    def wait(self, values: Sequence[Any]) -> None:
        """Return when the device has computed these values; raise the error it failed with."""

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        """Return ``value`` with its leaves, in the order of ``leaves()``, replaced."""
        raise NotImplementedError

    def is_leaf(self, value: Any) -> bool:
        """Return whether ``value`` is a single leaf, and not a tree of leaves."""
        leaves = list(self.leaves(value).values())
        return len(leaves) == 1 and leaves[0] is value

    def children(self, value: Any) -> dict[str, Any]:
        """Return the parts of ``value`` one level down by key; empty if it is a leaf.

        The keys from ``value`` to a leaf, with ``"/"`` between them, are its path in ``leaves``.
        """
        raise NotImplementedError

    def objects_of(self, value: Any) -> Sequence[Any]:
        """Return the objects of which ``value`` is made, if functions change these in place."""
        return ()

    def note_call(self, error: Exception, step: str, args: Mapping[str, Any]) -> None:
        """Note what is known about an ``error`` that a step raised.

        Args:
            error: What was raised.
            step: The name of the step.
            args: What it was called with, without its states.
        """

    def check_distinct(self, values: Mapping[str, Any]) -> None:
        """Raise ValueError if two of ``values``, by name, share a part that is changed in place."""

    def once(self, fn: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return ``fn``, so that ``form`` and a step that is compiled call it once between them.

        Args:
            fn: A function of tensors' values alone.
            name: What profiles call it.
        """
        return fn

    def form(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Return ``fn(*args)`` with shapes and dtypes in place of arrays; compute nothing.

        Args:
            fn: A function as in an operation of a graph.
            args: Values, or forms of values.
        """
        raise NotImplementedError

    def to_host(
        self, leaves: Sequence[Any], into: Sequence[np.ndarray[Any, Any] | None] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """Return the leaves as NumPy arrays of their dtypes, in one batch; wait for the device.

        Args:
            leaves: Leaves of variables.
            into: One array or None for each leaf. Later runs then neither change the arrays that
                are returned nor are slowed down because they are held: those that must be copied
                for that are copied into these, where they fit.
        """
        return self.arrays.to_host(leaves, into)

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        """Return the shape and dtype that ``to_host`` gives ``leaf``, without waiting for it."""
        return self.arrays.host_form(leaf)

    def fits_saved(self, leaf: Any, dtype: np.dtype[Any]) -> bool:
        """Return whether an array of ``dtype`` may be restored in the place of ``leaf``."""
        return bool(dtype == self.host_form(leaf)[1])

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        """Return ``array``, of the host form of ``leaf``, as a leaf in its place."""
        return self.arrays.from_numpy(array, leaf)

    def place(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        """Return ``array`` as ``from_host`` does; nothing else uses its memory, nor will."""
        return self.arrays.place(array, leaf)

    def from_source(self, leaf: Any, source: ArraySource) -> Any:
        """Return ``source`` as ``from_host`` does, reading what this process needs of it."""
        return self.from_host(leaf, source.read((0,) * len(source.shape), source.shape))

    def histogram(self, values: Any) -> Any:
        """Return what ``histogram_value`` takes of ``values``, computed where they are."""
        return self.arrays.histogram(values)

    def sum_of_squares(self, values: Any) -> Any:
        """Return the sum of the squares of ``values``, computed where they are."""
        return self.arrays.sum_of_squares(values)


_LOADERS: dict[str, Callable[[], Engine]] = {}


def register_engine(name: str, load: Callable[[], Engine]) -> None:
    """Let ``Graph(engine=name)`` use the engine that ``load`` returns.

    ``load`` is called when the first graph of that engine is made, so that no framework is
    imported before. Raises ValueError if the name is taken.
    """
    if name in _LOADERS:
        raise ValueError(f"an engine named {name!r} is registered already")
    _LOADERS[name] = load


def load_engine(name: str) -> Engine:
    """Return the engine registered as ``name``.

    Raises ValueError if there is none, ImportError if its framework is not installed.
    """
    if name not in _LOADERS:
        raise ValueError(f"engine must be one of {sorted(_LOADERS)}, got {name!r}")
    return _LOADERS[name]()

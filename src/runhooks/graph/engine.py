"""``Engine``: a framework that computes graphs of runhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from runhooks.arrays import ArrayLibrary
from runhooks.arrays.shards import ArraySource
from runhooks.errors import add_note
from runhooks.graph.base import Framework
from runhooks.graph.nodes import LATEST, UPDATE, Operation, Tensor, Variable
from runhooks.graph.plan import Body
from runhooks.near_names import with_article

Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST = 1000


class Kept(dict[Key, Value]):
    def get_or_make(self, key: Any, make: Callable[[], Value]) -> Value:
        """Return the value of ``key``, made each time if that is unhashable."""
        try:
            return self[key]
        except (KeyError, TypeError):
            pass  # or make() would raise in its context
        value = make()
        with suppress(TypeError):
            self[key] = value
        return value


class BoundedCache(Kept[Key, Value]):
    """One that keeps the thousand items added last."""

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread has been faster
                del self[next(iter(self))]


class Compilation:
    since: float | None = None


class BoundBody:
    """What an engine has made of a body, for variables of known structures.

    Attributes:
        step: Takes the parts of ``body.assigned`` and ``body.kept``, and the values of
            ``body.given``, one after the other. Returns a list of the new parts of
            ``body.assigned``, and one thing more, which ``fetched`` takes. Changes nothing. Raises
            ``AssignedError`` if it fails after old values were given up.
        compilation: There is something to ``log`` if its ``since`` is not None.
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
        """Note what is known about an ``error`` of ``step(*args)``, or raise a clearer one."""
        if self._note is not None:
            self._note(error)

    def log(self) -> None:
        """Log what was compiled."""


class AssignedError(Exception):
    """A run failed with ``error`` after it gave up old values; ``new``: the parts of new ones."""

    def __init__(self, new: Mapping[Variable, list[Any]], error: BaseException) -> None:
        self.new = new
        self.error = error


class Engine(Framework):
    """A framework that computes the graphs of runhooks: extend it to bring another.

    ``runhooks.engines.EagerEngine`` is a base for those that call the user's functions one by one.
    A *value* is what a variable holds: a pytree of arrays. A ``name`` is for messages.
    """

    #: The adapter of the library whose arrays variables hold.
    arrays: ClassVar[ArrayLibrary]

    #: Whether a bound body gives up old values where ``body.donate`` allows it.
    donates: ClassVar[bool] = False

    #: Whether it has ``form``.
    finds_forms: ClassVar[bool] = False

    #: Puts a value that was fed or drawn where the graph computes, if not None.
    put: Callable[[Any], Any] | None = None

    def bind(
        self, body: Body, structures: Mapping[Variable, Any], shared: BoundedCache[Any, Any]
    ) -> BoundBody:
        """Return what computes ``body`` in a session.

        ``structures`` are of ``flat``; ``shared`` is the engine's own, for all runs of the graph.
        """
        raise NotImplementedError

    def flat(self, value: Any) -> tuple[list[Any], Any]:
        """Return the parts of a value that bound bodies take and return, and its structure.

        The structure stays the same. By default the value is its only part.
        """
        return [value], None

    def whole(self, structure: Any, parts: Sequence[Any]) -> Any:
        """Undo ``flat``."""
        return parts[0]

    def check_initial(self, name: str, value: Any) -> None:
        leaves = self.leaves(value)
        if not callable(value) or list(leaves) != [""]:
            for path, leaf in leaves.items():
                self.check_initial_leaf(name, path, leaf)

    def check_initial_leaf(self, name: str, path: str, leaf: Any) -> None:
        """Raise TypeError if ``leaf`` is neither an array nor a number."""

    def initial(self, name: str, value: Any) -> Any:
        """Return a copy of ``value`` as a variable holds it.

        TypeError: it holds something other than arrays and numbers.
        """
        raise NotImplementedError

    def conform(self, name: str, old: Any, new: Any) -> Any:
        """Return ``new`` as a variable holds it.

        ValueError: its structure, shapes or dtypes differ from those of ``old``.
        """
        raise NotImplementedError

    def add(self, name: str, old: Any, delta: Any) -> Any:
        """Return ``old + delta``, leaf by leaf if ``delta`` is a pytree too."""
        raise NotImplementedError

    def wide(self, leaf: Any) -> Any:
        """Return a copy of ``leaf`` to hold a moving average: of float32 if it has fewer bits."""
        raise NotImplementedError

    def average(self, old: Any, new: Any, weight: Any) -> Any:
        """Return ``old``, a leaf of ``wide``, moved towards ``new`` by ``weight``, in its dtype.

        A ``weight`` of 1, or any for integers, gives ``new``.
        """
        raise NotImplementedError

    def as_like(self, old: Any, new: Any) -> Any:
        """Return the leaf ``new`` with the dtype of ``old``, where ``old`` is."""
        raise NotImplementedError

    def examples(self, *batch: Any) -> int:
        """Return how many examples a batch has: the length of its first array, or 1."""
        for part in batch:
            leaves = [part] if hasattr(part, "shape") else self.leaves(part).values()
            for leaf in leaves:
                for size in getattr(leaf, "shape", None) or ():
                    return int(size)
        return 1

    def new_sums(self) -> Any:
        """Return the zeros in which ``add_to_sums`` adds up.

        For ``mean_of_sums``: the sum, what it lacks by rounding, the weight, and what that lacks.
        """
        raise NotImplementedError

    def add_to_sums(self, name: str, sums: Any, value: Any, weight: Any) -> Any:
        """Return new ``sums``, with ``value`` added as often as ``weight`` says.

        ValueError: ``value`` is not a single number.
        """
        raise NotImplementedError

    def mean_of_sums(self, sums: Any) -> Any:
        return (sums[0] + sums[1]) / (sums[2] + sums[3])

    def integer(self, value: int) -> Any:
        """Return an integer on the host as the engine takes it; OverflowError: too large."""
        return value

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        """Return the random key of a run, before which ``runs``, as of ``integer``, have drawn one.

        ``seed`` and ``stream``, which tells the keys of a graph apart, are unsigned, of 32 bits.
        """
        raise NotImplementedError

    def wait(self, values: Sequence[Any]) -> None:
        """Return when these values are computed; raise the error of the device."""

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        """Return ``value`` with other leaves, in the order of ``leaves()``."""
        raise NotImplementedError

    def is_leaf(self, value: Any) -> bool:
        leaves = list(self.leaves(value).values())
        return len(leaves) == 1 and leaves[0] is value

    def children(self, value: Any) -> dict[str, Any]:
        """Return the parts of ``value`` one level down, by the keys in paths; none of a leaf."""
        raise NotImplementedError

    def objects_of(self, value: Any) -> Sequence[Any]:
        """Return the objects in ``value`` that functions change in place."""
        return ()

    def note_call(self, error: Exception, step: str, args: Mapping[str, Any]) -> None:
        """Note what is known about an ``error`` of ``step``; ``args``: all but its states."""

    def check_distinct(self, values: Mapping[str, Any]) -> None:
        """Raise ValueError if two of ``values``, by name, share a part that is changed in place."""

    def once(self, fn: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return ``fn``, called ``name`` in profiles: ``form`` and the step then call it once."""
        return fn

    def form(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Return the form of ``fn(*args)``, with shapes and dtypes for arrays; compute nothing."""
        raise NotImplementedError

    def to_host(
        self, leaves: Sequence[Any], into: Sequence[np.ndarray[Any, Any] | None] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """Return the leaves as NumPy arrays of their dtypes, in one batch; wait for the device.

        With ``into``, an array or None for each leaf, later runs neither change the result nor are
        slowed down by it: what must be copied is copied into these, where it fits.
        """
        return self.arrays.to_host(leaves, into)

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        """Return the shape and dtype that ``to_host`` gives ``leaf``, without waiting for it."""
        return self.arrays.host_form(leaf)

    def fits_saved(self, leaf: Any, dtype: np.dtype[Any]) -> bool:
        """Return whether an array of ``dtype`` may be restored as ``leaf``."""
        return bool(dtype == self.host_form(leaf)[1])

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        """Return ``array``, of the host form of ``leaf``, as a leaf in its place."""
        return self.arrays.from_numpy(array, leaf)

    def place(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        """Return ``array``, whose memory nothing else uses or will use, as ``from_host``."""
        return self.arrays.place(array, leaf)

    def from_source(self, leaf: Any, source: ArraySource) -> Any:
        """Return ``source`` as ``from_host``, reading what this process needs of it."""
        return self.from_host(leaf, source.read((0,) * len(source.shape), source.shape))

    def histogram(self, values: Any) -> Any:
        """Return what ``histogram_value`` takes, computed where ``values`` are."""
        return self.arrays.histogram(values)

    def sum_of_squares(self, values: Any) -> Any:
        return self.arrays.sum_of_squares(values)


_LOADERS: dict[str, Callable[[], Engine]] = {}


def register_engine(name: str, load: Callable[[], Engine]) -> None:
    """Let ``Graph(engine=name)`` use what ``load`` returns; ValueError: the name is taken."""
    if name in _LOADERS:
        raise ValueError(f"an engine named {name!r} is registered already")
    _LOADERS[name] = load


def load_engine(name: str) -> Engine:
    """Raise ValueError for an unknown name, ImportError if the framework is not installed."""
    if name not in _LOADERS:
        raise ValueError(f"engine must be one of {sorted(_LOADERS)}, got {name!r}")
    return _LOADERS[name]()


Values = Mapping[Tensor, Any]
Conform = Callable[[str, Any, Any], Any]


class Ready(NamedTuple):
    """An operation made ready to be evaluated.

    ``read`` takes its arguments from the values of tensors; ``fn`` may be an engine's own;
    ``output`` is None unless it has just one.
    """

    op: Operation
    read: Callable[[Values], tuple[Any, ...]]
    fn: Callable[..., Any]
    assigns: Variable | None
    output: Tensor | None


def ready(
    operations: Iterable[Operation],
    reader: Callable[[Operation], Callable[[Values], tuple[Any, ...]]] | None = None,
) -> list[Ready]:
    """Make ``operations`` ready; ``reader`` replaces ``read_args``."""
    return [
        Ready(
            op,
            op.read_args if reader is None else reader(op),
            op.fn,
            op.assigns,
            op.outputs[0] if len(op.outputs) == 1 else None,
        )
        for op in operations
        if op.fn is not None
    ]


def evaluate(
    operations: Iterable[Ready],
    conform: Conform,
    values: dict[Tensor, Any],
    variables: Mapping[Variable, Any],
) -> dict[Variable, Any]:
    """Put the outputs of ``operations``, in order, into ``values``, but for those that are there.

    Return the new values of variables; ``variables`` has those from before the run.
    """
    assigned: dict[Variable, Any] = {}
    for op, read, fn, variable, output in operations:
        try:
            if variable is None:
                result = fn(*read(values))
            else:
                old = variables[variable]
                result = fn(assigned.get(variable, old), *read(values))
                if op.type not in (UPDATE, LATEST):
                    result = conform(variable.op.name, old, result)
                assigned[variable] = result
            if output is not None:
                values.setdefault(output, result)
            elif op.outputs:
                for tensor, value in zip(op.outputs, outputs_of(op, result), strict=True):
                    values.setdefault(tensor, value)
        except Exception as error:
            note_operation(error, op)
            raise
    return assigned


def note_operation(error: BaseException, op: Operation) -> None:
    add_note(error, f"in the operation {op.name!r} of the graph")


def outputs_of(op: Operation, result: Any) -> tuple[Any, ...]:
    """ValueError: ``result`` has more or fewer values than ``op`` has outputs."""
    expected = len(op.outputs)
    if expected < 2:
        return (result,)[:expected]
    is_several = isinstance(result, tuple | list)
    if is_several and len(result) == expected:
        return tuple(result)
    got = len(result) if is_several else with_article(type(result).__name__)
    raise ValueError(
        f"{op.name!r} has num_outputs={expected}: it must give a tuple of {expected} values, "
        f"got {got}"
    )

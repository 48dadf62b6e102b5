"""What the variables of a session hold, and their parts by their names in checkpoints."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from runhooks.arrays.shards import Share, loaded_from, to_host
from runhooks.checkpoint.names import is_average
from runhooks.contract import PreparedRun
from runhooks.engines.conform import fitted
from runhooks.graph.base import ClosedSessionError
from runhooks.graph.engine import Engine
from runhooks.graph.epoch_means import EPOCH_SUMS, GLOBAL_SUMS
from runhooks.graph.nodes import InitialFrom, Variable
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")


class VariableValues:
    """What the variables of a session hold, and the counts of its runs; ``lock`` guards all of it.

    The parts of all values stand in one list, as runs take and return them.

    Args:
        engine: The engine of the graph; it takes values apart.

    Attributes:
        parts: The parts, those of one variable behind the other.
        places: Where the parts of each variable are.
        structures: What makes its value of them.
        counters: The values of variables on the host, such as the global step.
        step_variable: The global step; None if there is none.
        last: The run that was made last, if nothing else has changed a variable since.
        runs: The number of runs that have succeeded.
        changes: The number of successful runs that may have changed a variable.
        is_closed: Whether the session is closed.
    """

    __slots__ = (
        *("_engine", "changes", "counters", "is_closed", "last", "lock", "parts", "places"),
        *("runs", "step_variable", "structures"),
    )

    def __init__(self, engine: Engine) -> None:
        self.lock = threading.RLock()
        self._engine = engine
        self.parts: list[Any] = []
        self.places: dict[Variable, slice] = {}
        self.structures: dict[Variable, Any] = {}
        self.counters: dict[Variable, Any] = {}
        self.is_closed = False
        self.last: PreparedRun | None = None
        self.step_variable: Variable | None = None
        self.runs = self.changes = 0

    @property
    def global_step(self) -> int | None:
        """The global step; None if there is none. To be read without the lock."""
        return self.counters.get(self.step_variable)  # type: ignore[arg-type]

    def make_last(self, run: PreparedRun | None) -> None:
        """Note that ``run``, or else something that is no run, is about to change variables.

        Raises:
            RuntimeError: If the session is closed.
        """
        self.check_open()
        if self.last is not None:
            self.last.off_steps = 0
        self.last = run

    def value(self, variable: Variable) -> Any:
        """Return the value of ``variable``."""
        if variable.on_host:
            return self.counters[variable]
        return self._engine.whole(self.structures[variable], self.parts[self.places[variable]])

    def update(self, values: Mapping[Variable, Any]) -> None:
        """Give variables other values of the same structures.

        Raises:
            RuntimeError: If the session is closed.
        """
        self.make_last(None)
        for variable, value in values.items():
            if variable.on_host:
                self.counters[variable] = value
            else:
                self.parts[self.places[variable]], _ = self._engine.flat(value)

    def update_parts(self, parts: Mapping[Variable, list[Any]]) -> None:
        """Give variables other values, as their parts."""
        for variable, new in parts.items():
            self.parts[self.places[variable]] = new

    def initialize(self, variable: Variable) -> None:
        """Give ``variable`` its initial value, if it has none.

        Raises:
            RuntimeError: If the session is closed.
        """
        self.check_open()
        if variable in self.counters or variable in self.places:
            return
        value = self._initial(variable)
        if variable.on_host:
            self.counters[variable] = value
            return
        parts, self.structures[variable] = self._engine.flat(value)
        self.places[variable] = slice(len(self.parts), len(self.parts) + len(parts))
        self.parts += parts

    def restart(self, variable: Variable) -> None:
        """Give ``variable`` its initial value again.

        Raises:
            RuntimeError: If the session is closed.
        """
        self.update({variable: self._initial(variable)})

    def _initial(self, variable: Variable) -> Any:
        initial = variable.initial_value
        if isinstance(initial, InitialFrom):
            self.initialize(initial.variable)
            initial = initial.fn(self.value(initial.variable))
        # A function is called; a pytree that can be called, as some models can, is a value.
        value = initial() if callable(initial) and self._engine.is_leaf(initial) else initial
        return value if variable.on_host else self._engine.initial(variable.op.name, value)

    def check_open(self) -> None:
        """Raise RuntimeError if the session is closed."""
        if self.is_closed:
            raise ClosedSessionError("the session is closed: create a new one", self)

    def close(self) -> None:
        """Let go of all values."""
        self.parts.clear()  # bound runs have the list, and may live until Python collects cycles
        self.places, self.structures, self.counters = {}, {}, {}
        self.last, self.is_closed = None, True


#: What makes the name of a variable unique.
_NUMBER = re.compile(r"_\d+(?=/|$)")


def saved_leaves(engine: Engine, variable: Variable, value: Any) -> dict[str, Any]:
    """Return the leaves of ``value`` by their names in checkpoints, such as ``state/params/w``."""
    name = variable.op.name
    if variable.on_host:
        return {name: np.int64(value)}
    leaves = engine.leaves(value).items()
    return {f"{name}/{path}" if path else name: leaf for path, leaf in leaves}


def arrays_of(
    engine: Engine,
    values: Mapping[Variable, Any],
    into: Mapping[str, np.ndarray[Any, Any]] | None,
    share: Share | None = None,
) -> dict[str, Any]:
    """Return all leaves of ``values`` as arrays on the host, by name.

    ``into`` and ``share``: as for ``Session.snapshot``. Raises ValueError if two leaves have one
    name.
    """
    leaves: dict[str, Any] = {}
    for variable, value in values.items():
        for key, leaf in saved_leaves(engine, variable, value).items():
            if key in leaves:
                raise ValueError(f"two variables have a leaf that is saved as {key!r}: rename one")
            leaves[key] = leaf
    if share is not None:
        found = {key: engine.arrays.sharded(leaf) for key, leaf in leaves.items()}
        sharded = {key: it for key, it in found.items() if it is not None}
        return to_host(engine.to_host, leaves, sharded, into)
    places = None if into is None else [into.get(key) for key in leaves]
    return dict(zip(leaves, engine.to_host(list(leaves.values()), places), strict=True))


def merged_arrays(arrays: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return all of ``arrays`` and ``others``. Raises ValueError if two have one name."""
    if same := sorted(arrays.keys() & others.keys()):
        raise ValueError(f"a variable and an object are both saved as {same[0]!r}: rename one")
    return {**arrays, **others}


def values_from(
    engine: Engine,
    values: Mapping[Variable, Any],
    arrays: Mapping[str, Any],
    *,
    all_arrays: bool,
    is_given: bool,
    averages: Collection[str] = (),
) -> dict[Variable, Any]:
    """Return new values in place of ``values``, made of ``arrays``.

    ``is_given``: as in ``Snapshot``. The sums of means may be on one side alone, and so may moving
    ``averages``: neither what is reported nor what is averaged of a training makes it another.

    Raises:
        ValueError: Naming the arrays that are missing, or of another shape or dtype, or that, with
            ``all_arrays``, belong to no variable.
    """
    problems: list[str] = []
    found = {variable: saved_leaves(engine, variable, it) for variable, it in values.items()}
    if all_arrays:
        for variable, leaves in [*found.items()]:
            if not any(key in arrays for key in leaves) and _may_be_new(variable, averages):
                del found[variable]
    known = {key for leaves in found.values() for key in leaves}
    for variable, leaves in found.items():
        if missing := sorted(leaves.keys() - arrays.keys()):
            problems.append(f"missing {missing}")
            continue
        misfits = (_misfit(engine, variable, key, it, arrays[key]) for key, it in leaves.items())
        problems += filter(None, [next(filter(None, misfits), "")])
    unknown = sorted(arrays.keys() - known) if all_arrays else []
    unknown = [it for it in unknown if not it.endswith(EPOCH_SUMS) and not is_average(it, averages)]
    if unknown:
        problems.append(f"no variable for {unknown}")
    if problems:
        raise ValueError(
            f"the values are of another model: {_first(problems)}{_twice(known, arrays)}"
        )

    def load(it: tuple[Variable, str, Any]) -> Any:
        variable, key, leaf = it
        return _leaf(engine, variable, leaf, arrays[key], is_given=is_given)

    wanted = [(variable, *it) for variable, leaves in found.items() for it in leaves.items()]
    loaded = iter(loaded_from(arrays, load, wanted, itemgetter(1)))
    new: dict[Variable, Any] = {}
    for variable, leaves in found.items():
        parts = [next(loaded) for _ in leaves]
        new[variable] = (
            parts[0] if variable.on_host else engine.with_leaves(values[variable], parts)
        )
    return new


def _may_be_new(variable: Variable, averages: Collection[str]) -> bool:
    name = variable.op.name
    if is_mean := name.endswith(EPOCH_SUMS):
        _log.warning(
            "the checkpoint was saved without %s: at the end of this epoch, it is the mean of what "
            "is left of it",
            name.removesuffix(GLOBAL_SUMS).removesuffix(EPOCH_SUMS),
        )
    return is_mean or is_average(name, averages)


def _twice(ours: Iterable[str], saved: Collection[str]) -> str:
    """A hint for a program that has built its model in one graph twice, as notebooks do."""
    ours = set(ours)
    for name in sorted(ours.difference(saved)):
        first = _NUMBER.sub("", name)
        if first != name and first in ours and first in saved:
            return (
                f". The graph has {first!r} as well as {name!r}: a model that is built again needs "
                "a graph of its own, such as rh.Graph().as_default()"
            )
    return ""


def _misfit(engine: Engine, variable: Variable, key: str, leaf: Any, array: Any) -> str:
    """Say why ``array`` cannot be restored in the place of ``leaf``; "" if it can."""
    if variable.on_host:
        if array.shape != () or array.dtype.kind not in "iu":
            return f"{key!r} must be one integer, got {array.dtype}{list(array.shape)}"
        return ""
    shape, dtype = engine.host_form(leaf)
    if array.shape != shape or not engine.fits_saved(leaf, array.dtype):
        return f"{key!r} must be {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}"
    return ""


def _leaf(engine: Engine, variable: Variable, leaf: Any, array: Any, *, is_given: bool) -> Any:
    if variable.on_host:
        return int(np.asarray(array))
    if isinstance(array, np.ndarray):
        return engine.place(leaf, array) if is_given else engine.from_host(leaf, array)
    return engine.from_source(leaf, array)


def _first(problems: Iterable[str], most: int = 5) -> str:
    listed = list(problems)
    more = f"; and {len(listed) - most} more" if len(listed) > most else ""
    return "; ".join(listed[:most]) + more


Variables = Mapping[Variable, Any]


def leaves_of(engine: Engine, variables: Variables, name: str) -> dict[str, Any]:
    """Return the leaves called ``name``, or below it, by their names; empty if there are none."""
    below = f"{name}/"
    return {
        key: leaf
        for variable, value in variables.items()
        if name == variable.op.name or _is_near(variable, name)
        for key, leaf in saved_leaves(engine, variable, value).items()
        if key == name or key.startswith(below)
    }


def assigned(
    engine: Engine, variables: Variables, values: Mapping[str, Any]
) -> tuple[dict[Variable, Any], dict[str, Any]]:
    """Return new values of the variables that have leaves in ``values``, and the rest of these.

    Raises:
        ValueError: For an array of another shape, or a dtype that does not fit.
    """
    rest = dict(values)
    new = _replaced(
        *(engine, variables, values),
        lambda key, leaf: _fitted_leaf(engine, key, leaf, rest.pop(key)),
    )
    return new, rest


def substitutes(
    engine: Engine, variables: Variables, places: Mapping[str, str]
) -> tuple[dict[Variable, Any], dict[str, str]]:
    """Return values with other parts in ``places``, by variable, and the rest of ``places``.

    Args:
        engine: The engine of the variables.
        variables: Their values.
        places: The names of what takes a place, by the name of the place.

    Raises:
        ValueError: If there is nothing for a place, or if it has another shape.
    """
    names: dict[str, str] = {}
    others: dict[str, Any] = {}
    rest: dict[str, str] = {}
    for place, name in places.items():
        inside = leaves_of(engine, variables, place)
        others |= leaves_of(engine, variables, name)
        names |= {key: name + key.removeprefix(place) for key in inside}
        if not inside:
            rest[place] = name

    def other(key: str, old: Any) -> Any:
        if (found := others.get(names[key])) is None:
            raise ValueError(f"there is no {names[key]!r} to put in the place of {key!r}")
        if old.shape != found.shape:
            raise ValueError(
                f"{names[key]!r} of shape {list(found.shape)} does not fit in the place of "
                f"{key!r}, of shape {list(old.shape)}"
            )
        return engine.as_like(old, found)

    return _replaced(engine, variables, names, other), rest


def _replaced(
    engine: Engine,
    variables: Variables,
    names: Mapping[str, Any],
    leaf_for: Callable[[str, Any], Any],
) -> dict[Variable, Any]:
    """Return new values of the variables that have leaves in ``names``.

    ``leaf_for(name, leaf)`` returns what each of these leaves gives way to.
    """
    new: dict[Variable, Any] = {}
    for variable, old in variables.items():
        leaves = saved_leaves(engine, variable, old)
        if not names.keys().isdisjoint(leaves):
            changed = [leaf_for(key, it) if key in names else it for key, it in leaves.items()]
            on_host = variable.on_host
            new[variable] = int(changed[0]) if on_host else engine.with_leaves(old, changed)
    return new


def unknown(engine: Engine, variables: Variables, name: str) -> ValueError:
    """Return the error for a name that no leaf of ``variables`` has."""
    known = [key for v, value in variables.items() for key in saved_leaves(engine, v, value)]
    return ValueError(f"no variable, or part of one, is named {name!r}{suggestion(name, known)}")


def _is_near(variable: Variable, name: str) -> bool:
    own = variable.op.name
    return name.startswith(f"{own}/") or own.startswith(f"{name}/")


def _fitted_leaf(engine: Engine, name: str, old: Any, value: Any) -> Any:
    on_host = isinstance(old, np.int64)
    array = fitted(name, value, (old.shape, old.dtype) if on_host else engine.host_form(old))
    return array if on_host else engine.from_host(old, array)

"""What a session holds: values of variables, and how far inputs have come."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from runhooks.arrays.shards import Share, loaded_from, to_host
from runhooks.checkpoint.names import is_average
from runhooks.contract import PreparedRun, Snapshot
from runhooks.engines.conform import fitted
from runhooks.graph.base import ClosedSessionError, GraphKeys, Resized
from runhooks.graph.engine import Engine
from runhooks.graph.epoch_means import EPOCH_SUMS, GLOBAL_SUMS
from runhooks.graph.graph import Graph
from runhooks.graph.nodes import InitialFrom, Operation, Variable
from runhooks.graph.sources import EPOCH, Epochs, OpenInput, Source
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")


class VariableValues:
    """Values of variables, and counts of runs; ``lock`` guards all.

    Attributes:
        parts: As runs take and return them.
        counters: Values on the host, such as the global step.
        last: The run made last, if nothing else has changed a variable since.
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
        """To be read without the lock."""
        return self.counters.get(self.step_variable)  # type: ignore[arg-type]

    def make_last(self, run: PreparedRun | None) -> None:
        """Note that ``run``, or something else (None), is about to change variables."""
        self.check_open()
        if self.last is not None:
            self.last.off_steps = 0
        self.last = run

    def value(self, variable: Variable) -> Any:
        if variable.on_host:
            return self.counters[variable]
        return self._engine.whole(self.structures[variable], self.parts[self.places[variable]])

    def update(self, values: Mapping[Variable, Any]) -> None:
        self.make_last(None)
        for variable, value in values.items():
            if variable.on_host:
                self.counters[variable] = value
            else:
                self.parts[self.places[variable]], _ = self._engine.flat(value)

    def initialize(self, variable: Variable) -> None:
        self.check_open()
        if variable in self.counters or variable in self.places:
            return
        value = self.initial(variable)
        if variable.on_host:
            self.counters[variable] = value
            return
        parts, self.structures[variable] = self._engine.flat(value)
        self.places[variable] = slice(len(self.parts), len(self.parts) + len(parts))
        self.parts += parts

    def initial(self, variable: Variable) -> Any:
        initial = variable.initial_value
        if isinstance(initial, InitialFrom):
            self.initialize(initial.variable)
            initial = initial.fn(self.value(initial.variable))
        # A pytree that can be called is a value.
        value = initial() if callable(initial) and self._engine.is_leaf(initial) else initial
        return value if variable.on_host else self._engine.initial(variable.op.name, value)

    def check_open(self) -> None:
        if self.is_closed:
            raise ClosedSessionError("the session is closed: create a new one", self)

    def close(self) -> None:
        self.parts.clear()  # bound runs have the list, and may live on
        self.places, self.structures, self.counters = {}, {}, {}
        self.last, self.is_closed = None, True


_MOST_PROBLEMS = 5  # in a message


class SavedVariables(NamedTuple):
    engine: Engine
    values: Mapping[Variable, Any]

    def arrays(
        self, into: Mapping[str, np.ndarray[Any, Any]] | None, share: Share | None
    ) -> dict[str, Any]:
        """Return all leaves by name, as ``RawSession.snapshot``."""
        leaves: dict[str, Any] = {}
        for variable in self.values:
            for key, leaf in self._leaves(variable).items():
                if key in leaves:
                    raise ValueError(
                        f"two variables have a leaf that is saved as {key!r}: rename one"
                    )
                leaves[key] = leaf
        if share is None:
            return self._on_host(leaves, into)
        found = {key: self.engine.arrays.sharded(leaf) for key, leaf in leaves.items()}
        sharded = {key: it for key, it in found.items() if it is not None}
        return to_host(self.engine.to_host, leaves, sharded, into)

    def read(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of the leaves called ``name``, or below it."""
        return self._on_host(self._below(name), {})

    def values_from(
        self,
        arrays: Mapping[str, Any],
        *,
        all_arrays: bool,
        is_given: bool,
        averages: Collection[str] = (),
    ) -> dict[Variable, Any]:
        """Return new values; ``is_given``: as in ``Snapshot``.

        Raises ValueError for arrays that are missing, do not fit or, with ``all_arrays``, belong to
        no variable. Sums of means, and moving ``averages``, may be missing on one side.
        """
        found = {variable: self._leaves(variable) for variable in self.values}
        if all_arrays:
            for variable, leaves in [*found.items()]:
                if not any(key in arrays for key in leaves) and _may_be_new(variable, averages):
                    del found[variable]
        known = {key for leaves in found.values() for key in leaves}
        problems = [self._problem(it, leaves, arrays) for it, leaves in found.items()]
        problems = [it for it in problems if it]
        extra = sorted(arrays.keys() - known) if all_arrays else []
        extra = [it for it in extra if not it.endswith(EPOCH_SUMS) and not is_average(it, averages)]
        if extra:
            problems.append(f"no variable for {extra}")
        if problems:
            if (more := len(problems) - _MOST_PROBLEMS) > 0:
                problems[_MOST_PROBLEMS:] = [f"and {more} more"]
            raise ValueError(
                f"the values are of another model: {'; '.join(problems)}{_twice(known, arrays)}"
            )

        def load(it: tuple[Variable, str, Any]) -> Any:
            variable, key, leaf = it
            array = arrays[key]
            if variable.on_host:
                return int(np.asarray(array))
            if not isinstance(array, np.ndarray):
                return self.engine.from_source(leaf, array)
            return (self.engine.place if is_given else self.engine.from_host)(leaf, array)

        wanted = [(variable, *it) for variable, leaves in found.items() for it in leaves.items()]
        loaded = iter(loaded_from(arrays, load, wanted, itemgetter(1)))
        return {
            variable: self._with_leaves(variable, [next(loaded) for _ in leaves])
            for variable, leaves in found.items()
        }

    def assigned(self, values: Mapping[str, Any]) -> tuple[dict[Variable, Any], dict[str, Any]]:
        """Return new values of variables, and the rest of ``values``."""
        rest = dict(values)

        def given(name: str, old: Any) -> Any:
            on_host = isinstance(old, np.int64)
            form = (old.shape, old.dtype) if on_host else self.engine.host_form(old)
            array = fitted(name, rest.pop(name), form)
            return array if on_host else self.engine.from_host(old, array)

        return self._replaced(values, given), rest

    def substitutes(self, places: Mapping[str, str]) -> tuple[dict[Variable, Any], dict[str, str]]:
        """Return new values of variables, and the rest of ``places``."""
        names: dict[str, str] = {}
        others: dict[str, Any] = {}
        rest: dict[str, str] = {}
        for place, name in places.items():
            inside = self._below(place)
            others |= self._below(name)
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
            return self.engine.as_like(old, found)

        return self._replaced(names, other), rest

    def unknown(self, name: str) -> ValueError:
        known = [key for variable in self.values for key in self._leaves(variable)]
        return ValueError(
            f"no variable, or part of one, is named {name!r}{suggestion(name, known)}"
        )

    def _leaves(self, variable: Variable) -> dict[str, Any]:
        """Return leaves by their names, such as ``state/params/w``."""
        name, value = variable.op.name, self.values[variable]
        if variable.on_host:
            return {name: np.int64(value)}
        leaves = self.engine.leaves(value).items()
        return {f"{name}/{path}" if path else name: leaf for path, leaf in leaves}

    def _below(self, name: str) -> dict[str, Any]:
        return {
            key: leaf
            for variable in self.values
            if f"{name}/".startswith(f"{variable.op.name}/")
            or variable.op.name.startswith(f"{name}/")
            for key, leaf in self._leaves(variable).items()
            if f"{key}/".startswith(f"{name}/")
        }

    def _on_host(
        self, leaves: Mapping[str, Any], into: Mapping[str, np.ndarray[Any, Any]] | None
    ) -> dict[str, Any]:
        places = None if into is None else [into.get(key) for key in leaves]
        return dict(zip(leaves, self.engine.to_host(list(leaves.values()), places), strict=True))

    def _with_leaves(self, variable: Variable, leaves: list[Any]) -> Any:
        if variable.on_host:
            return int(leaves[0])
        return self.engine.with_leaves(self.values[variable], leaves)

    def _replaced(
        self, names: Mapping[str, Any], leaf_for: Callable[[str, Any], Any]
    ) -> dict[Variable, Any]:
        new: dict[Variable, Any] = {}
        for variable in self.values:
            leaves = self._leaves(variable)
            if not names.keys().isdisjoint(leaves):
                changed = [leaf_for(key, it) if key in names else it for key, it in leaves.items()]
                new[variable] = self._with_leaves(variable, changed)
        return new

    def _problem(
        self, variable: Variable, leaves: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> str:
        """Say why ``arrays`` do not fit; "" if they do."""
        if missing := sorted(leaves.keys() - arrays.keys()):
            return f"missing {missing}"
        for key, leaf in leaves.items():
            array = arrays[key]
            if variable.on_host:
                form, fits = "one integer", array.shape == () and array.dtype.kind in "iu"
            else:
                shape, dtype = self.engine.host_form(leaf)
                form = f"{dtype}{list(shape)}"
                fits = array.shape == shape and self.engine.fits_saved(leaf, array.dtype)
            if not fits:
                return f"{key!r} must be {form}, got {array.dtype}{list(array.shape)}"
        return ""


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
    """A hint for a notebook that has built its model in one graph twice."""
    ours = set(ours)
    for name in sorted(ours.difference(saved)):
        first = re.sub(r"_\d+(?=/|$)", "", name)
        if first != name and first in ours and first in saved:
            return (
                f". The graph has {first!r} as well as {name!r}: a model that is built again needs "
                "a graph of its own, such as rh.Graph().as_default()"
            )
    return ""


INPUT_STATES = "inputs/"


class SessionInputs:
    """Opens inputs when a run first needs them, where a checkpoint left them."""

    def __init__(
        self, graph: Graph, values: VariableValues, reset: Callable[[list[Any]], None]
    ) -> None:
        self._graph = graph
        self._values = values
        self._reset = reset
        self._epoch: int | None = None
        self.epochs = Epochs(
            graph,
            lambda: values.global_step,
            lambda op: self.opened.get(op) or self._positions.get(op.name, {}),
            self.at,
            values.lock,
        )
        self.opened: dict[Operation, OpenInput] = {}
        # Of inputs still to be opened, by name.
        self._positions: dict[str, Any] = {}
        # Rewound, these go on drawing from their generators.
        self._begun: set[Operation] = set()
        # To be opened, without a position.
        self._unplaced: set[Operation] = set()
        # Whether the first run that drew made a step.
        self._drawn_by_steps: dict[Operation, bool] = {}
        self._warned_of_draws = False
        self._add_secs: Callable[[float], None] | None = None
        self.error: Exception | None = None

    def open(self, operations: Iterable[Operation]) -> None:
        for op in operations:
            if op not in self.opened:
                self._open(op)

    def at(self, op: Operation) -> OpenInput:
        """Return the input of ``op``, opened again if another thread has just rewound it."""
        if op not in self.opened:
            self._values.check_open()
            self._open(op)
        return self.opened[op]

    def open_at_known_positions(self) -> None:
        """Open inputs whose position is known: they may draw from generators loaded later."""
        self.open(op for op in self._operations() if op.name in self._positions)

    def check_draws(self, operations: Iterable[Operation], *, makes_step: bool) -> None:
        theirs = self._graph.get_collection(GraphKeys.EVALUATION_INPUTS) if makes_step else ()
        for op in operations:  # all, before one is noted
            if op in theirs:
                raise ValueError(
                    f"a run that makes a step must not draw from {op.name!r}, the data of an "
                    "EvaluationHook: fetch what its test step returns in an evaluation, with "
                    "summary_op or one of its hooks"
                )
        for op in operations:
            by_steps = self._drawn_by_steps.setdefault(op, makes_step)
            if by_steps != makes_step and self.opened[op].by_step and not self._warned_of_draws:
                self._warned_of_draws = True
                _log.warning(
                    "the input %r goes by the global step, and runs that make no step draw from "
                    "it too: a resumed run would get other elements. Feed these runs, or give them "
                    "an input of their own, as an EvaluationHook has",
                    op.name,
                )

    def time(self, add_secs: Callable[[float], None]) -> None:
        if self._add_secs is None:
            self._add_secs = add_secs
            for opened in self.opened.values():
                opened.timed(add_secs)

    def rewind(self, operations: Iterable[Operation], to: Mapping[str, Any] | None) -> Any:
        before = {}
        for op in operations:
            opened, position = self.opened.pop(op, None), self._positions.pop(op.name, None)
            before[op.name] = position if opened is None else opened.position()
            self._unplaced.discard(op)
        self._positions.update(to or {})
        return before

    def positions(self) -> dict[str, Any]:
        now = {op.name: opened.position() for op, opened in self.opened.items()}
        positions = {**self._positions, **now}
        return {INPUT_STATES + name: it for name, it in positions.items() if it is not None}

    def load(self, snapshot: Snapshot | None) -> None:
        """Inputs that draw from random generators are opened at once, which sets these."""
        self.opened.clear()
        self._positions, self._unplaced = {}, set()
        if snapshot is None:
            return
        self._positions = {
            name.removeprefix(INPUT_STATES): state
            for name, state in snapshot.states.items()
            if name.startswith(INPUT_STATES)
        }
        if snapshot.resized is not None:
            self._resize(snapshot.resized)
        self._unplaced = {op for op in self._operations() if op.name not in self._positions}
        known = [op for op in self._operations() if "random" in self._positions.get(op.name, ())]
        self.open(known)

    def _resize(self, resized: Resized) -> None:
        """Keep the epochs done, and not the elements of one rank in the next."""
        step = self._values.global_step or 0
        epochs_name = None if self.epochs.input is None else self.epochs.input.name
        for name, position in list(self._positions.items()):
            if (drawn := position.get("drawn")) is None:
                continue
            is_done = 0 < drawn == position.get("length")
            epoch = position.get("epoch", 0) + is_done
            self._positions[name] = {"epoch": epoch}
            if "ended" in position:
                self._positions[name]["ended"] = True
            elif drawn and not is_done:
                if name == epochs_name:
                    # Means begin anew, too.
                    self._positions.pop(EPOCH, None)
                _log.info(
                    "the input %r begins its epoch %d anew: %d ranks have saved the checkpoint of "
                    "step %d, and there are %d, each of which draws other elements",
                    *(name, epoch + 1, resized.saved, step, resized.size),
                )

    def check_resized(self, states: Mapping[str, Any], resized: Resized) -> None:
        for op in self._operations():
            if "state" in states.get(INPUT_STATES + op.name, ()):
                raise ValueError(
                    f"the input {op.name!r} cannot go on where it was on {resized.saved} ranks, "
                    f"and there are {resized.size}: give rh.inputs a function of the step, which "
                    f"returns what this rank draws from there on, or start {resized.saved} ranks"
                )

    def state_names(self) -> set[str]:
        own = [op.name for op in self._operations()] + [EPOCH] * self.epochs.is_known
        return {INPUT_STATES + name for name in own}

    def _draw_epoch(self) -> int:
        number = self.epochs.begun_by(self._values.global_step or 0)
        if number != self._epoch:  # in the first run, too: values may be of InitFrom
            self._epoch = number
            self._reset(self._graph.get_collection(GraphKeys.EPOCH_RESETS))
        return number

    def _operations(self) -> list[Operation]:
        return [op for op in self._graph.get_operations() if op.type == "Inputs"]

    def _open(self, op: Operation) -> None:
        if op.type == "Epoch":
            self._epoch = self._positions.pop(op.name, {}).get("number")
            self.opened[op] = OpenInput(
                self._draw_epoch, lambda: None if self._epoch is None else {"number": self._epoch}
            )
            return
        if op.type == "EpochNow":
            self.opened[op] = OpenInput(lambda: self.epochs.number, lambda: None)
            return
        source: Source = op.args[0]
        step = self._values.global_step or 0
        if op not in self._begun:
            self._begun.add(op)
            if op not in self._graph.get_collection(GraphKeys.EVALUATION_INPUTS):
                source.begin()
        opened = source.open(op.name, step, self._positions.get(op.name))
        self._positions.pop(op.name, None)
        if (put := self._graph.engine.put) is not None:
            opened.mapped(put)
        if self._add_secs is not None:
            opened.timed(self._add_secs)
        self.opened[op] = opened
        if op in self._unplaced and step and not opened.by_step:
            _log.info(
                "the input %r starts over: the checkpoint of step %d has no position for it; see "
                "rh.inputs for sources that keep theirs",
                op.name,
                step,
            )
        self._unplaced.discard(op)

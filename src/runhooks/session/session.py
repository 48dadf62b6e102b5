"""``Session``: the variables of a graph, and the runs that compute with them. No hooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from types import NoneType, TracebackType
from typing import Any, Protocol

import numpy as np

from runhooks.checkpoint.snapshot import Snapshot
from runhooks.graph.collections import GraphKeys
from runhooks.graph.global_step import get_global_step
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.nest import structure_key
from runhooks.graph.parts import PART_STATES
from runhooks.graph.plan import inputs_of
from runhooks.graph.source import OpenInput, Source
from runhooks.graph.steps import step_not_named
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable
from runhooks.session.executable import Executable
from runhooks.session.saved import arrays_of, is_leaf, values_from, without_twins
from runhooks.session.stop_request import StopRequest

_log = logging.getLogger("runhooks")

# What a run asks at every step is looked up without a detour over another module.
_LEAVES = (Tensor, Operation, str)
_FEED_DICT = (Mapping, NoneType)

#: Where the states in a snapshot have the positions of the inputs.
_INPUTS = "inputs/"


class Stateful(Protocol):
    """What a checkpoint keeps beside the variables: anything with these two methods."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any: ...


class Session:
    """Runs a graph. Its variables begin with their initial values, without an init op.

    ``graph``: the graph to run, the default graph if None. A session may be used by several
    threads: one run at a time.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self._graph = graph or get_default_graph()
        self._lock = threading.RLock()
        self._ready: dict[Any, Executable] = {}
        self._variables: dict[Variable, Any] = {}
        self._inputs: dict[Operation, OpenInput] = {}
        #: Where inputs that are still to be opened were left, by the name of their operation.
        self._positions: dict[str, Any] = {}
        #: Inputs that what was loaded last says nothing of, until they are opened.
        self._unplaced: set[Operation] = set()
        #: Whether the runs that draw from an input make a step, as those did that came first.
        self._drawn_by_steps: dict[Operation, bool] = {}
        self._warned_of_draws = self._warned_of_step = False
        self._inputs_timed = False
        #: How many sessions of a monitored session were lost before this one.
        self.recoveries = 0
        #: Made when the monitored session is to stop: what takes long, as an evaluation, hears it.
        self.stop_request = StopRequest()
        #: How many runs have ended well.
        self.runs = 0
        #: The seconds that inputs took to give their elements, from ``time_inputs()`` on.
        self.input_secs = 0.0
        #: The seconds that were not training; whoever spends some, as on an evaluation, adds them.
        self.time_apart = 0.0
        #: The path of the checkpoint that holds its present state, whole, or None: the one that it
        #: was restored from, or saved as, last.
        self.checkpoint: str | None = None
        self._attached: dict[str, Stateful] = {}
        self._loaded_states: Mapping[str, Any] = {}
        self._closed = False
        self._step: Variable | None = None
        self._find_global_step()

    @property
    def graph(self) -> Graph:
        """The graph it runs."""
        return self._graph

    @property
    def global_step(self) -> int | None:
        """The global step, known without a run; None if the graph has none."""
        return self._variables.get(self._step)  # type: ignore[arg-type]

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Compute ``fetches`` and return their values in the same shape.

        ``fetches``: a tensor, variable, operation (its value is None) or name, or any nesting of
        lists, tuples, named tuples and dicts of these. ``feed_dict``: values by tensor or name;
        any tensor may be fed. What is read of variables is what they were when the run began; all
        that it assigns lands together when it has succeeded, and nothing if it raises (but for a
        device that fails in the middle: the error then says so). Values of the jax engine stay on
        their device until they are read.

        Raises ValueError or TypeError for what cannot be fetched or fed, OutOfRangeError at the
        end of an input, RuntimeError if the session is closed, and what the graph's functions
        raise. ``options`` and ``run_metadata`` are TensorFlow's: ValueError if given.
        """
        if options is not None or run_metadata is not None:
            raise ValueError(
                f"the {self._graph.engine.name} engine has neither run options nor run metadata: "
                "options and run_metadata must be None"
            )
        if type(feed_dict) is not dict and not isinstance(feed_dict, _FEED_DICT):
            raise TypeError(
                f"feed_dict must map tensors to values, got {feed_dict!r}; "
                "to fetch several tensors, give them as one list"
            )
        structure = fetches if isinstance(fetches, _LEAVES) else structure_key(fetches)
        key = (structure, *feed_dict) if feed_dict else structure
        try:
            executable = self._ready.get(key)
        except TypeError:  # something in fetches or feed_dict is no part of a graph
            executable = None
        with self._lock:
            if executable is None or self._closed:
                executable = self._prepare(key, fetches, feed_dict or {})
            result = executable.run(self._variables, self._inputs, feed_dict)
            self.runs += 1
            return result

    def wait(self) -> None:
        """Return when the device has computed all variables; raises what it failed of."""
        with self._lock:
            self._check_open()
            self._graph.engine.wait(list(self._variables.values()))

    def rewind(self, *fetches: Any) -> None:
        """Let the inputs that ``fetches`` draw from begin anew at the next run that needs them.

        A function is called with the global step of then, a stateful iterable goes back to where it
        was when first opened. Raises ValueError or TypeError for what cannot be fetched.
        """
        with self._lock:
            for op in inputs_of(self._graph, fetches):
                self._inputs.pop(op, None)
                self._positions.pop(op.name, None)
                self._unplaced.discard(op)
            self._ready.clear()

    def time_inputs(self) -> None:
        """From now on add the seconds that inputs take to ``input_secs``."""
        with self._lock:
            if not self._inputs_timed:
                self._inputs_timed = True
                for opened in self._inputs.values():
                    opened.timed(self._add_input_secs)

    def snapshot(self, into: Mapping[str, np.ndarray[Any, Any]] | None = None) -> Snapshot:
        """All saved variables, the positions of inputs, and the states of what is attached.

        ``into``: arrays by name, or none at all; what is taken is then apart from later runs: they
        neither change it nor are slower because it is held. What has to be copied for that is
        copied into these arrays where they fit. Waits for the device. Raises ValueError if two
        leaves go by one name.
        """
        with self._lock:
            self._check_open()
            parts = self._graph.parts
            arrays = arrays_of(self._graph.engine, self._saved(), into)
            part_arrays, part_states = ({}, {}) if parts is None else parts.save(into)
            states = {name: dict(part.state_dict()) for name, part in self._attached.items()}
            states = {name: state for name, state in states.items() if state}
            return Snapshot(
                without_twins(arrays, part_arrays),
                {**states, **part_states, **self._input_positions()},
            )

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        """Give the variables the values of ``snapshot``, all or none, and their states to the rest.

        ``only``: names of the variables to load, the others keep their values. Inputs begin anew;
        stateful ones, unless ``only`` is given, where ``snapshot`` was taken.
        Raises ValueError naming what is missing, unknown, or of another shape or dtype.
        """
        with self._lock:
            self._check_open()
            self._find_global_step()
            wanted = {v: x for v, x in self._saved().items() if only is None or v.op.name in only}
            engine = self._graph.engine
            arrays, load_parts = snapshot.arrays, None
            if (parts := self._graph.parts) is not None:
                load_parts = parts.loader(arrays, snapshot.states, only)
                arrays = {name: it for name, it in arrays.items() if not parts.owns(name)}
            new = values_from(engine, wanted, arrays, all_arrays=only is None)
            self._variables.update(new)
            self.checkpoint = None
            self._inputs.clear()
            self._ready.clear()
            self._loaded_states = snapshot.states
            self._positions = {
                name.removeprefix(_INPUTS): state
                for name, state in snapshot.states.items()
                if only is None and name.startswith(_INPUTS)
            }
            self._unplaced = {
                op
                for op in self._input_operations()
                if only is None and op.name not in self._positions
            }
            if load_parts is not None:
                self._open_placed()  # may draw from a random generator that is a part
                load_parts()
            for name, part in self._attached.items():
                self._give_state(name, part)

    def attach(self, name: str, part: Stateful) -> None:
        """Make ``part`` one with the variables: saved in snapshots, and given its state back.

        If what was loaded last holds a state of that name, ``part`` gets it at once. Raises
        ValueError if ``name`` is taken.
        """
        if name in self._attached:
            raise ValueError(f"something is attached as {name!r} already: give it another name")
        self._attached[name] = part
        self._give_state(name, part)

    def detach(self, name: str) -> None:
        """Undo ``attach``."""
        self._attached.pop(name, None)

    def untaken(self) -> list[str]:
        """The names of the states that were loaded last and belong to nothing here, sorted."""
        ours = {*self._attached, *(_INPUTS + op.name for op in self._input_operations())}
        return sorted(
            name
            for name in self._loaded_states
            if name not in ours and not name.startswith(PART_STATES)
        )

    def close(self) -> None:
        """Let go of the variables; a run raises RuntimeError from now on. May be called again."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._variables = {}
            self._inputs.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self, key: Any, fetches: Any, feed_dict: Mapping[Any, Any]) -> Executable:
        self._check_open()
        executables = self._graph.executables
        try:
            executable = executables.get(key)
        except TypeError:
            executable = None
        if executable is None:
            executable = Executable(self._graph, fetches, tuple(feed_dict))
            executables[key] = executable
        if self._graph.parts is not None and not self._warned_of_step:
            self._check_steps(fetches, feed_dict)
        self._find_global_step()
        for variable in executable.variables:
            self._initialise(variable)
        for op in executable.inputs:
            if op not in self._inputs:
                self._open(op)
        self._check_draws(executable)
        self._ready[key] = executable
        return executable

    def _check_steps(self, fetches: Any, feed_dict: Mapping[Any, Any]) -> None:
        if (found := step_not_named(self._graph, fetches, feed_dict)) is not None:
            self._warned_of_step = True
            step, output = found
            _log.warning(
                "%r is an output of the step %r, which this run makes: fetch %r along if that is "
                "meant, or evaluate with a function of your own",
                *(output.name, step.name, step.name),
            )

    def _check_draws(self, executable: Executable) -> None:
        makes_step = self._step in executable.changed
        for op in executable.inputs:
            by_steps = self._drawn_by_steps.setdefault(op, makes_step)
            if by_steps != makes_step and self._inputs[op].by_step and not self._warned_of_draws:
                self._warned_of_draws = True
                _log.warning(
                    "the input %r goes by the global step, and runs that make no step draw from "
                    "it too: a resumed run would get other elements; feed these runs, or give them "
                    "an input of their own, as an EvaluationHook has",
                    op.name,
                )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the session is closed, and cannot be used any more: create one")

    def _find_global_step(self) -> None:
        step = get_global_step(self._graph)
        if step is not None:
            self._initialise(step)
            self._step = step

    def _initialise(self, variable: Variable) -> None:
        if variable in self._variables:
            return
        initial = variable.initial_value
        engine = self._graph.engine
        # A function is called; a pytree that can be called, as some models can, is a value.
        value = initial() if callable(initial) and is_leaf(engine, initial) else initial
        if not variable.on_host:
            value = engine.initial(variable.op.name, value)
        self._variables[variable] = value

    def _saved(self) -> dict[Variable, Any]:
        variables = self._graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        for variable in variables:
            self._initialise(variable)
        return {variable: self._variables[variable] for variable in variables}

    def _input_operations(self) -> list[Operation]:
        return [op for op in self._graph.get_operations() if op.type == "Inputs"]

    def _open_placed(self) -> None:
        for op in self._input_operations():
            if op.name in self._positions:
                self._open(op)

    def _open(self, op: Operation) -> None:
        source: Source = op.args[0]
        opened = source.open(op.name, self.global_step or 0, self._positions.get(op.name))
        self._positions.pop(op.name, None)
        if self._inputs_timed:
            opened.timed(self._add_input_secs)
        self._inputs[op] = opened
        if op in self._unplaced and self.global_step and not opened.by_step:
            _log.info(
                "the input %r does not go on where the checkpoint of step %d was saved, which "
                "knows no position of it: see rh.inputs for sources that keep theirs",
                op.name,
                self.global_step,
            )
        self._unplaced.discard(op)

    def _input_positions(self) -> dict[str, Any]:
        now = {op.name: opened.position() for op, opened in self._inputs.items()}
        positions = {**self._positions, **now}
        return {_INPUTS + name: it for name, it in positions.items() if it is not None}

    def _add_input_secs(self, secs: float) -> None:
        self.input_secs += secs

    def _give_state(self, name: str, part: Stateful) -> None:
        if name in self._loaded_states:
            # A loader may draw from a global random generator when it is opened: that comes first,
            # for ``part`` may bring that generator back.
            self._open_placed()
            part.load_state_dict(self._loaded_states[name])

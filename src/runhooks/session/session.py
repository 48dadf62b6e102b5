"""``Session``: the variables of a graph, and the runs that compute with them. No hooks."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from types import NoneType, TracebackType
from typing import Any, Protocol

from runhooks.checkpoint.snapshot import Snapshot
from runhooks.graph.collections import GraphKeys
from runhooks.graph.global_step import get_global_step
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.nest import structure_key
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable
from runhooks.session.executable import Executable, open_input
from runhooks.session.saved import arrays_of, is_leaf, values_from

# What a run asks at every step is looked up without a detour over another module.
_LEAVES = (Tensor, Operation, str)
_FEED_DICT = (Mapping, NoneType)


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
        self._iterators: dict[Operation, Iterator[Any]] = {}
        #: The checkpoint that it was restored from, whole, or None.
        self.restored_from: str | None = None
        self._attached: dict[str, Stateful] = {}
        self._loaded_states: Mapping[str, Any] = {}
        self._closed = False
        self._step: Variable | None = None
        self._find_global_step()
        self._start_step = self.global_step or 0

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
            return executable.run(self._variables, self._iterators, feed_dict)

    def snapshot(self) -> Snapshot:
        """A copy of all saved variables, and of what is attached, for a checkpoint.

        Waits for the device. Raises ValueError if two leaves go by one name.
        """
        with self._lock:
            self._check_open()
            arrays = arrays_of(self._graph.engine, self._saved())
            states = {name: dict(part.state_dict()) for name, part in self._attached.items()}
            return Snapshot(arrays, {name: state for name, state in states.items() if state})

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        """Give the variables the values of ``snapshot``, all or none, and their states to the rest.

        ``only``: names of the variables to load, the others keep their values. Inputs begin anew.
        Raises ValueError naming what is missing, unknown, or of another shape or dtype.
        """
        with self._lock:
            self._check_open()
            self._find_global_step()
            wanted = {v: x for v, x in self._saved().items() if only is None or v.op.name in only}
            engine = self._graph.engine
            new = values_from(engine, wanted, snapshot.arrays, all_arrays=only is None)
            self._variables.update(new)
            self._iterators.clear()
            self._ready.clear()
            self._start_step = self.global_step or 0
            self._loaded_states = snapshot.states
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

    def close(self) -> None:
        """Let go of the variables; a run raises RuntimeError from now on. May be called again."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._variables = {}
            self._iterators.clear()

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
        self._find_global_step()
        for variable in executable.variables:
            self._initialise(variable)
        for op in executable.inputs:
            if op not in self._iterators:
                self._iterators[op] = open_input(op, self._start_step)
        self._ready[key] = executable
        return executable

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

    def _give_state(self, name: str, part: Stateful) -> None:
        if name in self._loaded_states:
            part.load_state_dict(self._loaded_states[name])

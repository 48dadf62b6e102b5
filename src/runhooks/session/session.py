"""``Session``: the variables of a graph, and the runs that compute with them. No hooks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import numpy as np

from runhooks.arrays.shards import Share
from runhooks.checkpoint.names import averages_in, saved_averages
from runhooks.contract import PreparedRun, RawSession, Snapshot, Stateful
from runhooks.graph.base import OBJECT_STATES, ClosedSessionError, GraphKeys
from runhooks.graph.build import get_global_step
from runhooks.graph.engine import BoundedCache
from runhooks.graph.graph import Graph, own_graph, step_not_named
from runhooks.graph.nest import structure_key
from runhooks.graph.nodes import Operation, Variable
from runhooks.graph.plan import make_plan
from runhooks.graph.sources import Epochs
from runhooks.session.runs import BoundRun, PlannedRun, check_arguments
from runhooks.session.states import SavedVariables, SessionInputs, VariableValues

_log = logging.getLogger("runhooks")


class Session(RawSession):
    """Runs a graph. Its variables start with their initial values, without an init op.

    Threads may share it; it makes one run at a time.

    Args:
        graph: None: the default graph.

    Raises:
        TypeError: If the graph is a framework's own, whose sessions the framework makes.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self._graph = graph or own_graph()
        self._values = VariableValues(self._graph.engine)
        super().__init__()
        self._lock = self._values.lock
        self._ready: BoundedCache[Any, PreparedRun] = BoundedCache()
        self._last: PreparedRun | None = None
        self._inputs = SessionInputs(self._graph, self._values, self._reset)
        self._warned_of_step = False
        self._find_global_step()

    @property
    def graph(self) -> Graph:
        """The graph it runs."""
        return self._graph

    @property
    def global_step(self) -> int | None:
        """The global step, known without a run; None if the graph has none."""
        return self._values.global_step

    @property
    def epochs(self) -> Epochs | None:
        return self._inputs.epochs if self._inputs.epochs.is_known else None

    @property
    def runs(self) -> int:  # type: ignore[override] # nobody sets it
        """The number of runs that have succeeded."""
        return self._values.runs

    @property
    def changes(self) -> int:  # type: ignore[override] # nobody sets it
        """The number of successful runs that may have changed a variable."""
        return self._values.changes

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        """Compute ``fetches`` and return their values in the same structure.

        A run is a transaction: it reads variables as they were before it, and all its assignments
        land together, or none. Values of the jax engine stay on their device until they are read.

        Args:
            fetches: A tensor, variable, operation (its value is None) or name, or any nesting of
                lists, tuples, named tuples and dicts of these.
            feed_dict: Values by tensor or name. Any tensor may be fed.
            options: TensorFlow's; leave it out, like ``run_metadata``.
            run_metadata: TensorFlow's.
            hooks: False, as for a monitored session: this one calls none.

        Raises:
            ValueError, TypeError: For an argument that cannot be fetched or fed.
            OutOfRangeError: At the end of an input.
            RuntimeError: If the session is closed.
        """
        run = self._last
        if not (
            run is not None
            and (fetches is run.leaf or run.is_of(fetches))
            and (feed_dict is run.fed or run.is_fed(feed_dict))
            and options is None
            and run_metadata is None
            and hooks is False
        ):
            self.check_no_hooks(hooks)
            run = self._find(fetches, feed_dict, options, run_metadata)
        return run.again(feed_dict)

    def find_run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> PreparedRun | None:
        if type(self).run is not _own_run or "run" in vars(self):
            return None  # whoever replaced it is to see every run
        return self._find(fetches, feed_dict)

    def wait(self) -> None:
        with self._lock:
            self._values.check_open()
            self._graph.engine.wait(self._values.parts)

    def rewind(self, *fetches: Any, to: Any = None) -> Any:
        """Let the inputs of ``fetches`` start over at the next run that needs them.

        A function is called with the global step of that run; a stateful iterable goes back to
        where it was when it was first opened. Returns where they were.

        Args:
            fetches: What needs the inputs.
            to: What an earlier call has returned: they go on where they were then.

        Raises:
            ValueError, TypeError: For an argument that cannot be fetched.
        """
        with self._lock:
            before = self._inputs.rewind(self._graph.effects_of(fetches).inputs, to)
            if (last := self._values.last) is not None:
                last.off_steps = 0  # when the data end is to be found anew
            return before

    def inputs_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Any]:
        inputs = make_plan(self._graph, fetches, feed_keys).inputs
        return [op for op in inputs if op.type == "Inputs"]

    def time_inputs(self) -> None:
        with self._lock:
            self._inputs.time(self._add_input_secs)

    @property
    def input_error(self) -> Exception | None:  # type: ignore[override] # nobody sets it
        return self._inputs.error

    def snapshot(
        self,
        into: Mapping[str, np.ndarray[Any, Any]] | None = None,
        share: Share | None = None,
    ) -> Snapshot:
        with self._lock:
            objects, arrays = self._graph.objects, self._saved().arrays(into, share)
            others, states = ({}, {}) if objects is None else objects.save(into, share)
            if same := sorted(arrays.keys() & others.keys()):
                raise ValueError(
                    f"a variable and an object are both saved as {same[0]!r}: rename one"
                )
            return Snapshot(
                {**arrays, **others},
                {**self.attached_states(), **states, **self._inputs.positions()},
            )

    def saved_names(self) -> list[str]:
        variables = self._graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        names = [variable.op.name for variable in variables]
        return names if self._graph.objects is None else [*names, *self._graph.objects.names]

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        """Load ``snapshot``, or ``only`` the variables of these names, completely or not at all.

        Inputs begin anew; without ``only``, stateful ones where ``snapshot`` was taken.

        Raises:
            ValueError: Naming what is missing, unknown, or of another shape or dtype.
        """
        with self._lock:
            self._values.check_open()
            self._find_global_step()
            wanted = self._saved(only)
            if snapshot.resized is not None and only is None:
                self._inputs.check_resized(snapshot.states, snapshot.resized)
            arrays, load_objects = snapshot.arrays, None
            if (objects := self._graph.objects) is not None:
                load_objects = objects.loader(
                    *(arrays, snapshot.states, only, snapshot.resized), is_given=snapshot.is_given
                )
                arrays = {name: it for name, it in arrays.items() if not objects.owns(name)}
            new = wanted.values_from(
                arrays,
                all_arrays=only is None,
                is_given=snapshot.is_given,
                averages=[*averages_in(self._graph), *saved_averages(snapshot.states)],
            )
            self._values.update(new)
            self.checkpoint = self._last = None
            self._ready.clear()
            self._inputs.load(snapshot if only is None else None)
            if load_objects is not None:
                self._inputs.open_at_known_positions()
                load_objects()
            self.take_states(snapshot.states)

    def read(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        with self._lock:
            saved, objects = self._saved(), self._graph.objects
            if found := saved.read(name):
                return found
            if objects is None:
                raise saved.unknown(name)
            return objects.read(name)

    def assign(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            saved, objects = self._saved(), self._graph.objects
            new, others = saved.assigned(values)
            if objects is not None:
                assign_others = objects.assigner(others)
                self._values.update(new)
                assign_others()
            elif others:
                raise saved.unknown(next(iter(others)))
            else:
                self._values.update(new)
            self._values.changes += 1

    @contextmanager
    def substituted(self, places: Mapping[str, str]) -> Iterator[None]:
        with self._lock:
            saved, objects = self._saved(), self._graph.objects
            new, others = saved.substitutes(places)
            if others and objects is None:
                raise saved.unknown(next(iter(others)))
            before = {variable: saved.values[variable] for variable in new}
            with nullcontext() if objects is None else objects.substituted(others):
                self._values.update(new)
                try:
                    yield
                finally:
                    if not self._values.is_closed:
                        self._values.update(before)

    def restore_state(self, saved: Stateful, state: Mapping[str, Any]) -> None:
        self._inputs.open_at_known_positions()
        super().restore_state(saved, state)

    def unclaimed_states(self) -> dict[str, Any]:
        ours = self._inputs.state_names()
        return {
            name: state
            for name, state in super().unclaimed_states().items()
            if name not in ours and not name.startswith(OBJECT_STATES)
        }

    def found_closed(self, error: Exception) -> bool:
        return isinstance(error, ClosedSessionError) and error.owner is self._values

    def close(self) -> None:
        """Release the variables; runs then raise RuntimeError. May be called again."""
        with self._lock:
            self._last = None
            self._ready.clear()
            self._values.close()
            self._inputs.opened.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _reset(self, resets: list[Any]) -> None:
        for reset in resets:
            if isinstance(reset, Operation):
                self.run(reset)
            elif isinstance(reset, Variable):
                self._values.update({reset: self._values.initial(reset)})
            else:
                reset()

    def _add_input_secs(self, secs: float) -> None:
        self.input_secs += secs

    def _find(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> PreparedRun:
        check_arguments(self._graph.engine, feed_dict, options, run_metadata)
        keys = tuple(feed_dict or ())
        key = (structure_key(fetches), *keys)
        with self._lock:
            run = self._last = self._ready.get_or_make(key, lambda: self._bound(key, fetches, keys))
        return run

    def _bound(self, key: Any, fetches: Any, feed_keys: tuple[Any, ...]) -> PreparedRun:
        self._values.check_open()
        planned: PlannedRun = self._graph.planned_runs.get_or_make(
            key, lambda: PlannedRun(self._graph, fetches, feed_keys)
        )
        if self._graph.objects is not None and not self._warned_of_step:
            found = step_not_named(self._graph, fetches, feed_keys)
            if found is not None:
                self._warned_of_step = True
                step, output = (it.name for it in found)
                _log.warning(
                    "fetching %r makes the step %r: fetch %r too if that is intended, or evaluate "
                    "with a function of your own",
                    *(output, step, step),
                )
        self._find_global_step()
        for variable in planned.variables:
            self._values.initialize(variable)
        self._inputs.open(planned.plan.inputs)
        makes_step = self._values.step_variable in planned.changed
        self._inputs.check_draws(planned.plan.inputs, makes_step=makes_step)
        return BoundRun(fetches, planned, self._values, self._inputs)

    def _find_global_step(self) -> None:
        step = get_global_step(self._graph)
        if step is not None:
            self._values.initialize(step)
            self._values.step_variable = step

    def _saved(self, only: Collection[str] | None = None) -> SavedVariables:
        self._values.check_open()
        variables = self._graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        for variable in variables:
            self._values.initialize(variable)
        values = {
            it: self._values.value(it) for it in variables if only is None or it.op.name in only
        }
        return SavedVariables(self._graph.engine, values)


_own_run = Session.run

"""``Session``: a ``tf.compat.v1.Session`` whose runs are made by cached callables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from runhooks.engines.tensorflow.fetches import DirectRun, FetchPlan, changes_step, make_plan
from runhooks.engines.tensorflow.session_state import SessionState
from runhooks.engines.tensorflow.step_graph import UNCHANGED, step_graph_of
from runhooks.graph.bounded_cache import BoundedCache
from runhooks.graph.nest import FetchList, structure_key

v1 = tf.compat.v1

Run = Callable[[Any], Any]

_LEAVES = (tf.Tensor, tf.Operation)


_Session: Any = v1.Session


class Session(_Session, SessionState):  # type: ignore[misc]
    """A ``tf.compat.v1.Session`` that knows the global step without a run of its own.

    A set of fetches and feeds is resolved once, and then run by a callable. A run that changes the
    global step also fetches its new value; with a ``target``, where other workers may increase it,
    every run does. All else is TensorFlow's.
    """

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        v1.Session.__init__(self, target, graph, config)
        SessionState.__init__(self, step_graph_of(self.graph))
        self._has_servers = bool(target)
        self._runs_by_key: dict[Any, Run] = BoundedCache()

    @property
    def _sess(self) -> Any:
        # Programs follow `_sess` from a monitored session to one of a class named Session.
        return self

    def begin(self) -> None:
        """Note that all variables have values now."""
        self.is_shared = self._has_servers
        self._runs_by_key.clear()

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        if options is None and run_metadata is None and (not feed_dict or type(feed_dict) is dict):
            structure = (
                fetches
                if isinstance(fetches, _LEAVES)
                else (fetches.key if type(fetches) is FetchList else structure_key(fetches))
            )
            key = (structure, *feed_dict) if feed_dict else structure
            try:
                run = self._runs_by_key.get(key)
            except TypeError:  # a variable, or something that is not in a graph
                return self.run_whole(fetches, feed_dict, options, run_metadata)
            if run is None:
                plan = self._plan(key, fetches, feed_dict or {})
                if plan.direct is None or self._closed:
                    return self.run_whole(fetches, feed_dict, options, run_metadata, plan)
                run = self._runs_by_key[key] = self._callable(plan, plan.direct)
            result = run(feed_dict)
            self.runs += 1
            return result
        return self.run_whole(fetches, feed_dict, options, run_metadata)

    def make_callable(self, *args: Any, **kwargs: Any) -> Any:
        """As in TensorFlow. A call that may change the global step makes it unknown."""
        made = v1.Session.make_callable(self, *args, **kwargs)
        if not changes_step(self.step_graph, args[0] if args else kwargs.get("fetches")):
            return made

        def call(*values: Any, **options: Any) -> Any:
            try:
                return made(*values, **options)
            finally:
                self.forget_step()

        return call

    def close(self) -> None:
        """As in TensorFlow; may be called again."""
        self.is_over = True
        try:
            v1.Session.close(self)
        finally:
            self._runs_by_key.clear()  # callables that outlive the session release nothing

    def run_plainly(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """``Session.run`` of TensorFlow."""
        return v1.Session.run(self, fetches, feed_dict, options, run_metadata)

    def _plan(self, key: Any, fetches: Any, feed_dict: Mapping[Any, Any]) -> FetchPlan:
        # What is added to the graph later may change the global step in the same fetches.
        plans, key = self.step_graph.plans, (self.graph.version, key)
        plan: FetchPlan | None = plans.get(key)
        if plan is None:
            plan = plans[key] = make_plan(self.step_graph, fetches, tuple(feed_dict))
        return plan

    def _callable(self, plan: FetchPlan, direct: DirectRun) -> Run:
        steps = self.steps_to_fetch(plan.step)
        names = list(dict.fromkeys([*direct.fetches, *(tensor.name for tensor in steps)]))
        options = config_pb2.CallableOptions(
            feed=direct.feeds,
            fetch=names,  # a server answers each name once
            target=direct.targets,
        )
        made = self._make_callable_from_options(options)
        convert, read, call = direct.convert, direct.read, self._do_call
        take_step, forget = self.take_step, self.forget_step
        step_of = _picker([names.index(tensor.name) for tensor in steps])
        note_error = self.note_error
        changes = plan.step is None or plan.step is not UNCHANGED

        def run(feed_dict: Any) -> Any:
            try:
                if convert:
                    values = call(made, *[to_array(feed_dict[key]) for key, to_array in convert])
                else:
                    values = call(made)
            except BaseException as error:
                note_error(error, changes)
                raise
            if step_of is not None:
                take_step(step_of(values))
            elif changes:
                forget()
            return read(values)

        return run


def _picker(places: list[int]) -> Callable[[Any], Any] | None:
    """Return a function that picks the values at ``places``; None if there are none."""
    if not places:
        return None
    if places == list(range(places[0], places[-1] + 1)):
        return itemgetter(slice(places[0], places[-1] + 1))
    return itemgetter(*places)

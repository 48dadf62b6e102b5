"""``Session``: a ``tf.compat.v1.Session`` whose runs are made by cached callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from runhooks.engines.tensorflow.callable_run import CallableRun
from runhooks.engines.tensorflow.fetches import DirectRun, FetchPlan, make_plan
from runhooks.engines.tensorflow.session_state import SessionState
from runhooks.engines.tensorflow.step_graph import step_graph_of
from runhooks.graph.bounded_cache import BoundedCache
from runhooks.graph.nest import structure_key

v1 = tf.compat.v1

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
        self._runs_by_key: dict[Any, CallableRun] = BoundedCache()
        self._last: CallableRun | None = None  # the run that was asked for last

    @property
    def _sess(self) -> Any:
        # Programs follow `_sess` from a monitored session to one of a class named Session.
        return self

    def begin(self) -> None:
        """Note that all variables have values now."""
        self.is_shared = self._has_servers
        self._forget_runs()

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        self.check_no_hooks(hooks)
        if options is None and run_metadata is None:
            run = self._last
            if run is None or not (run.is_of(fetches) and run.is_fed(feed_dict)):
                run = self._last = self._find(fetches, feed_dict)
            if run is not None:
                return run.again(feed_dict)
        return self.run_whole(fetches, feed_dict, options, run_metadata)

    def find_run(self, fetches: Any, feed_dict: Any = None) -> CallableRun | None:
        if type(self).run is not _own_run or "run" in vars(self):
            return None  # whoever has replaced it is to see every run
        return self._find(fetches, feed_dict)

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """As in TensorFlow; each call is a call of ``run``."""
        return SessionState.make_callable(self, fetches, feed_list, accept_options)

    def close(self) -> None:
        """As in TensorFlow; may be called again."""
        self.is_over = True
        try:
            v1.Session.close(self)
        finally:
            self._forget_runs()  # callables that outlive the session release nothing

    def run_plainly(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """``Session.run`` of TensorFlow."""
        return v1.Session.run(self, fetches, feed_dict, options, run_metadata)

    def _find(self, fetches: Any, feed_dict: Any) -> CallableRun | None:
        """Return the run of ``fetches``, made now if it is new; None if ``Session.run`` has to."""
        if feed_dict and type(feed_dict) is not dict:
            return None
        structure = structure_key(fetches)
        key = (structure, *feed_dict) if feed_dict else structure
        try:
            run = self._runs_by_key.get(key)
        except TypeError:  # a variable, or something that is not in a graph
            return None
        if run is None:
            plan = self._plan(key, fetches, feed_dict or {})
            if plan.direct is None or self._closed:
                return None
            run = self._callable(plan, plan.direct, fetches, feed_dict or ())
            self._runs_by_key[key] = run
        return run

    def _forget_runs(self) -> None:
        self._runs_by_key.clear()
        self._last = None

    def _plan(self, key: Any, fetches: Any, feed_dict: Mapping[Any, Any]) -> FetchPlan:
        # What is added to the graph later may change the global step in the same fetches.
        plans, key = self.step_graph.plans, (self.graph.version, key)
        plan: FetchPlan | None = plans.get(key)
        if plan is None:
            plan = plans[key] = make_plan(self.step_graph, fetches, tuple(feed_dict))
        return plan

    def _callable(
        self, plan: FetchPlan, direct: DirectRun, fetches: Any, feed_keys: Iterable[Any]
    ) -> CallableRun:
        steps = self.steps_to_fetch(plan.step)
        names = list(dict.fromkeys([*direct.fetches, *(tensor.name for tensor in steps)]))
        options = config_pb2.CallableOptions(
            feed=direct.feeds,
            fetch=names,  # a server answers each name once
            target=direct.targets,
        )
        made = self._make_callable_from_options(options)
        step_of = _picker([names.index(tensor.name) for tensor in steps])
        call = partial(self._do_call, made)
        return CallableRun(fetches, feed_keys, self, plan.step, direct, call, step_of)


_own_run = Session.run


def _picker(places: list[int]) -> Callable[[Any], Any] | None:
    """Return a function that picks the values at ``places``; None if there are none."""
    if not places:
        return None
    if places == list(range(places[0], places[-1] + 1)):
        return itemgetter(slice(places[0], places[-1] + 1))
    return itemgetter(*places)

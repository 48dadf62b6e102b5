"""Sessions of a ``tf.Graph``: ours, whose runs are cached callables, and foreign ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import is_
from typing import Any, Literal

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client.session import SessionInterface

from runhooks.contract import PreparedRun
from runhooks.engines.tensorflow.fetches import (
    UNCHANGED,
    DirectRun,
    FetchPlan,
    StepChange,
    analyzed,
    make_plan,
)
from runhooks.engines.tensorflow.session_state import SessionState
from runhooks.graph.engine import BoundedCache
from runhooks.graph.nest import structure_key


class CallableRun(PreparedRun):
    """A run of ``fetches`` in ``session``.

    Args:
        fetches: What is asked for.
        feed_keys: The keys of the feed_dict.
        session: The session, which learns the global step and counts the run.
        change: What the run does to the global step; None if that is not known.
        direct: How its feeds are converted, and its result read.
        call: Takes the feeds, and returns what was fetched.
        step_of: Takes what was fetched, and returns the values of the global step that are in it;
            None if there are none.
    """

    __slots__ = (
        *("_call", "_convert", "_increases", "_keys", "_read", "_session", "_step_of"),
        "_tells_step",
    )

    def __init__(
        self,
        fetches: Any,
        feed_keys: Iterable[Any],
        session: SessionState,
        change: StepChange | None,
        direct: DirectRun,
        call: Callable[..., Any],
        step_of: Callable[[Any], Any] | None,
    ) -> None:
        keys = tuple(feed_keys)
        super().__init__(fetches, keys)
        self._keys = keys
        self._session = session
        self._convert, self._read = direct.convert, direct.read
        self._call = call
        self._step_of = step_of
        self._tells_step = change is not UNCHANGED or session.is_shared
        self._increases = change is not None and change.never_decreases
        # Where others may change the step, or the run does not say by how much it does, each run
        # has to be followed by a look at what is due.
        increase = None if change is None or session.is_shared else change.increase
        self.steps = -1 if increase is None else increase

    def is_fed(self, feed_dict: Any) -> bool:
        """As ``PreparedRun.is_fed``; tensors cannot be compared, and their hash takes a while."""
        keys = self._keys
        if not feed_dict:
            return not keys
        is_fed = type(feed_dict) is dict and len(feed_dict) == len(keys)
        return is_fed and all(map(is_, feed_dict, keys))

    def foresee(self, off_steps: float) -> None:
        """As ``PreparedRun.foresee``."""
        if self.steps >= 0:
            self._session.foresee(self, off_steps)

    def again(self, feed_dict: Any) -> Any:
        """Make the run, and return the values of the fetches. An off-step is as fast as this is."""
        session, convert = self._session, self._convert
        number = session.begin_change() if self._tells_step else session.note_unchanged()
        values: Any = None
        try:
            if convert:
                values = self._call(*[to_array(feed_dict[key]) for key, to_array in convert])
            else:
                values = self._call()
        except BaseException as error:
            self.off_steps = 0
            session.note_error(error)
            raise
        finally:
            if number:
                steps = None if values is None or self._step_of is None else self._step_of(values)
                session.end_change(number, steps, self, increases=self._increases)
        session.runs += 1
        self.off_steps -= 1
        return self._read(values)


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
        SessionState.__init__(self, analyzed(self.graph))
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

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """As in TensorFlow."""
        with self.made_partly():
            return v1.Session.partial_run(self, handle, fetches, feed_dict)

    def close(self) -> None:
        """As in TensorFlow; may be called again."""
        self.is_over = True
        try:
            v1.Session.close(self)
        finally:
            self._forget_runs()  # callables that outlive the session release nothing

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        """``Session.run`` of TensorFlow."""
        try:
            return v1.Session.run(self, fetches, *given)
        except (TypeError, ValueError) as error:
            fed = given[0] if given and isinstance(given[0], Mapping) else ()
            self.analyzed_graph.note_near_names(error, [fetches, *fed])
            raise

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
            try:
                run = self._callable(plan, plan.direct, fetches, feed_dict or ())
            except RuntimeError as error:  # closed by another thread just now
                self.note_error(error)
                raise
            self._runs_by_key[key] = run
        return run

    def _forget_runs(self) -> None:
        self._runs_by_key.clear()
        self._last = None

    def _plan(self, key: Any, fetches: Any, feed_dict: Mapping[Any, Any]) -> FetchPlan:
        # What is added to the graph later may change the global step in the same fetches.
        plans, key = self.analyzed_graph.plans, (self.graph.version, key)
        plan: FetchPlan | None = plans.get(key)
        if plan is None:
            plan = plans[key] = make_plan(self.analyzed_graph, fetches, tuple(feed_dict))
        return plan

    def _callable(
        self, plan: FetchPlan, direct: DirectRun, fetches: Any, feed_keys: Iterable[Any]
    ) -> CallableRun:
        steps = self.steps_to_fetch(plan.step, direct.feeds)
        names = list(dict.fromkeys([*direct.fetches, *(tensor.name for tensor in steps)]))
        options = config_pb2.CallableOptions(
            feed=direct.feeds,
            fetch=names,  # a server answers each name once
            target=direct.targets,
        )
        made = self._make_callable_from_options(options)
        places = [names.index(tensor.name) for tensor in steps]
        step_of = partial(_picked, places) if places else None
        call = partial(self._do_call, made)
        return CallableRun(fetches, feed_keys, self, plan.step, direct, call, step_of)


_own_run = Session.run


def _picked(places: list[int], values: list[Any]) -> list[Any]:
    return [values[place] for place in places]


_ATTRIBUTE = "runhooks_session"


class AdoptedSession(SessionState, SessionInterface):  # type: ignore[misc]
    """A session around another one of TensorFlow's, which makes the runs.

    Attributes that it lacks are looked up in the other.
    """

    def __init__(self, session: Any) -> None:
        self.adopted = session
        SessionState.__init__(self, analyzed(session.graph))
        self.is_shared = True

    def __getattr__(self, name: str) -> Any:
        if name == "adopted":  # not made yet
            raise AttributeError(name)
        return getattr(self.adopted, name)

    @property
    def graph(self) -> Any:
        """The graph that it runs."""
        return self.adopted.graph

    @property
    def _sess(self) -> Any:
        return self.adopted

    @property
    def sess_str(self) -> Any:
        """The target of the session, for TensorFlow."""
        return self.adopted.sess_str

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        """As ``Session.run``."""
        self.check_no_hooks(hooks)
        return self.run_whole(fetches, feed_dict, options, run_metadata)

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        """``run`` of the session itself."""
        return self.adopted.run(fetches, *given)

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        """``partial_run_setup`` of the session itself."""
        return self.adopted.partial_run_setup(fetches, feeds)

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """``partial_run`` of the session itself."""
        with self.made_partly():
            return self.adopted.partial_run(handle, fetches, feed_dict)

    def close(self) -> None:
        """Close the session."""
        self.is_over = True
        self.adopted.close()


class ObservedSession(AdoptedSession):
    """A session whose runs others make; its global step is read each time that it is needed."""

    def __init__(self, session: Any) -> None:
        AdoptedSession.__init__(self, session)
        self._read_step: Callable[[], Any] | None = None

    @property
    def global_step(self) -> int | None:
        """The global step, by a run of its own."""
        return self.refresh_step()

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        if fetches is not self.analyzed_graph.step_reads.tensor:
            return AdoptedSession.run_plainly(self, fetches, *given)
        if self._read_step is None:
            self._read_step = self.adopted.make_callable(fetches)
        return self._read_step()


def observed(session: Any) -> ObservedSession:
    """Return a session of TensorFlow's as hooks see it; always the same object."""
    found = getattr(session, _ATTRIBUTE, None)
    if not isinstance(found, ObservedSession):
        found = ObservedSession(session)
        with suppress(AttributeError):
            setattr(session, _ATTRIBUTE, found)
    return found


def is_session(session: Any) -> bool:
    """Return whether ``session`` is one of TensorFlow's."""
    return isinstance(getattr(session, "graph", None), tf.Graph)

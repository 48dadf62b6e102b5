"""Sessions of a ``tf.Graph``: ours, and those of others."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client.session import SessionInterface

from runhooks.contract import PreparedRun
from runhooks.engines.tensorflow.fetches import (
    UNCHANGED,
    AnalyzedGraph,
    DirectRun,
    FetchPlan,
    analyzed,
    make_plan,
)
from runhooks.engines.tensorflow.files import (
    check_no_other_checkpoints,
    check_saver,
    check_scheme,
    respell_checkpoints,
)
from runhooks.engines.tensorflow.session_state import SessionState
from runhooks.errors import FailedPreconditionError
from runhooks.graph.base import Place, SessionOpener
from runhooks.graph.engine import BoundedCache
from runhooks.graph.nest import structure_key

v1 = tf.compat.v1

_log = logging.getLogger("runhooks")


class CallableRun(PreparedRun):
    """A run: ``call`` takes the feeds, and returns what was fetched, the step at ``places``."""

    __slots__ = (
        *("_call", "_convert", "_increases", "_keys", "_places", "_read", "_session"),
        "_tells_step",
    )

    def __init__(
        self,
        fetches: Any,
        feed_keys: Iterable[Any],
        session: SessionState,
        plan: FetchPlan,
        direct: DirectRun,
        call: Callable[..., Any],
        places: Sequence[int],
    ) -> None:
        keys = tuple(feed_keys)
        super().__init__(fetches, keys)
        self._keys = keys
        self._session = session
        self._convert, self._read = direct.convert, direct.read
        self._call = call
        self._places = places
        self._tells_step = plan.step is not UNCHANGED or session.is_shared
        self._increases = plan.never_decreases
        # -1 if it is not known: each run is followed by a look at what is due.
        increase = None if plan.step is None or session.is_shared else plan.step.increase
        self.steps = -1 if increase is None else increase

    def is_fed(self, feed_dict: Any) -> bool:
        """As ``PreparedRun.is_fed``, without the slow hash of tensors."""
        keys = self._keys
        if not feed_dict:
            return not keys
        is_fed = type(feed_dict) is dict and len(feed_dict) == len(keys)
        return is_fed and all(map(is_, feed_dict, keys))

    def foresee(self, off_steps: float) -> None:
        if self.steps >= 0:
            self._session.foresee(self, off_steps)

    def again(self, feed_dict: Any) -> Any:
        """As ``PreparedRun.again``. Off-steps do nothing else."""
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
                steps = None if values is None else [values[it] for it in self._places]
                session.end_change(number, steps, self, increases=self._increases)
        session.runs += 1
        self.off_steps -= 1
        return self._read(values)


_Session: Any = v1.Session


class Session(_Session, SessionState):  # type: ignore[misc]
    """A ``tf.compat.v1.Session`` that knows the global step without a run of its own.

    A run that changes the step also fetches it; with a ``target``, where other workers may change
    it, each does.
    """

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        v1.Session.__init__(self, target, graph, config)
        SessionState.__init__(self, analyzed(self.graph))
        self._has_servers = bool(target)
        self._runs_by_key: dict[Any, CallableRun] = BoundedCache()
        self._last: CallableRun | None = None

    @property
    def _sess(self) -> Any:
        # Programs follow `_sess` to an object of a class named Session.
        return self

    def begin(self) -> None:
        """Note that all variables have values."""
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
        return SessionState.make_callable(self, fetches, feed_list, accept_options)

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        with self.made_partly():
            return v1.Session.partial_run(self, handle, fetches, feed_dict)

    def close(self) -> None:
        self.is_over = True
        try:
            v1.Session.close(self)
        finally:
            self._forget_runs()  # callables that outlive the session release nothing

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        try:
            return v1.Session.run(self, fetches, *given)
        except (TypeError, ValueError) as error:
            fed = given[0] if given and isinstance(given[0], Mapping) else ()
            self.analyzed_graph.note_near_names(error, [fetches, *fed])
            raise

    def _find(self, fetches: Any, feed_dict: Any) -> CallableRun | None:
        """Return the run; None if TensorFlow's ``run`` has to make it."""
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
            except RuntimeError as error:  # closed by another thread
                self.note_error(error)
                raise
            self._runs_by_key[key] = run
        return run

    def _forget_runs(self) -> None:
        self._runs_by_key.clear()
        self._last = None

    def _plan(self, key: Any, fetches: Any, feed_dict: Mapping[Any, Any]) -> FetchPlan:
        # What is added to the graph may change the step in the same fetches.
        plans, key = self.analyzed_graph.plans, (self.graph.version, key)
        plan: FetchPlan | None = plans.get(key)
        if plan is None:
            plan = plans[key] = make_plan(self.analyzed_graph, fetches, tuple(feed_dict))
        return plan

    def _callable(
        self, plan: FetchPlan, direct: DirectRun, fetches: Any, feed_keys: Iterable[Any]
    ) -> CallableRun:
        steps = self.steps_to_fetch(plan.step, direct.feeds)
        # A server answers each name once.
        names = list(dict.fromkeys([*direct.fetches, *(tensor.name for tensor in steps)]))
        options = config_pb2.CallableOptions(feed=direct.feeds, fetch=names, target=direct.targets)
        call = partial(self._do_call, self._make_callable_from_options(options))
        places = [names.index(tensor.name) for tensor in steps]
        return CallableRun(fetches, feed_keys, self, plan, direct, call, places)


_own_run = Session.run


class AdoptedSession(SessionState, SessionInterface):  # type: ignore[misc]
    """A session around another, which makes the runs."""

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
        return self.adopted.graph

    @property
    def _sess(self) -> Any:
        return self.adopted

    @property
    def sess_str(self) -> Any:
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
        self.check_no_hooks(hooks)
        return self.run_whole(fetches, feed_dict, options, run_metadata)

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        return self.adopted.run(fetches, *given)

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        return self.adopted.partial_run_setup(fetches, feeds)

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        with self.made_partly():
            return self.adopted.partial_run(handle, fetches, feed_dict)

    def close(self) -> None:
        self.is_over = True
        self.adopted.close()


class ObservedSession(AdoptedSession):
    """A session whose runs others make; the global step is read whenever it is needed."""

    def __init__(self, session: Any) -> None:
        AdoptedSession.__init__(self, session)
        self._read_step: Callable[[], Any] | None = None

    @property
    def global_step(self) -> int | None:
        return self.refresh_step()

    def run_plainly(self, fetches: Any, *given: Any) -> Any:
        if fetches is not self.analyzed_graph.global_step:
            return AdoptedSession.run_plainly(self, fetches, *given)
        if self._read_step is None:
            self._read_step = self.adopted.make_callable(fetches)
        return self._read_step()


#: What TensorFlow's own scaffold finds in a graph, or makes.
_PARTS = (
    *("init_op", "ready_op", "ready_for_local_init_op"),
    *("local_init_op", "summary_op", "saver"),
)


class TensorFlowOpener(SessionOpener):
    scaffolds = (v1.train.Scaffold,)
    joins_ranks = False
    writes_checkpoints = False

    def __init__(self, graph: AnalyzedGraph) -> None:
        self._graph = graph

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        check_scheme(place)
        return place

    def fill_scaffold(self, scaffold: Any) -> None:
        check_saver(scaffold.saver)
        with self._graph.launched.as_default():
            if scaffold.saver is None:
                make = partial(v1.train.Saver, sharded=True, allow_empty=True)
                scaffold.saver = scaffold.get_or_default("saver", v1.GraphKeys.SAVERS, make)
            # After the saver, which changes the step; before the graph is final.
            self.prepare_graph()
            given = {name: getattr(scaffold, name) for name in _PARTS}
            filled = v1.train.Scaffold(**given).finalize()
        for name in _PARTS:
            setattr(scaffold, name, getattr(filled, name))

    def default_local_init_op(self) -> Any:
        return v1.train.Scaffold.default_local_init_op()

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        with self._opened(master, config) as session:
            if not self._restored(session, scaffold.saver, checkpoint_dir, path):
                session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
                if getattr(scaffold, "init_from", None) is not None:  # ours has it
                    scaffold.init_from.load_into(session)
                if scaffold.init_fn is not None:
                    scaffold.init_fn(session)
            if missing := _missing_after_local_init(session, scaffold):
                raise RuntimeError(
                    f"Init operations did not make model ready.  Init op: {scaffold.init_op}, init "
                    f"fn: {scaffold.init_fn}, local_init_op: {scaffold.local_init_op}, error: "
                    f"{missing}"
                )
        return session

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, Exception | None]:
        with self._opened(master, config) as session:
            missing = _missing_after_local_init(session, scaffold)
        if missing is None:
            return session, None
        session.close()
        return None, FailedPreconditionError(missing)

    @contextmanager
    def _opened(self, master: str, config: Any) -> Iterator[Session]:
        session = Session(master, self._graph.launched, config)
        try:
            yield session
        except BaseException:
            session.close()
            raise

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        error: Exception = tf.errors.DeadlineExceededError(None, None, message)
        return error

    def prepare_graph(self) -> None:
        # The user's own creator may fill no scaffold.
        self._graph.add_step_reads()

    def as_raw_session(self, session: Any) -> Any:
        if isinstance(session, Session):
            session.begin()
            return session
        return AdoptedSession(session)

    def start_threads(self, session: Any, coord: Any) -> None:
        for runner in self._graph.launched.get_collection(v1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(session, coord=coord, daemon=True, start=True)

    def _restored(self, session: Session, saver: Any, directory: Place, path: Place) -> bool:
        if path:
            self._restore(session, saver, os.fspath(path))
            return True
        if not directory:
            return False
        folder = os.fspath(directory)
        state = v1.train.get_checkpoint_state(folder)
        if state is None or not state.model_checkpoint_path:
            check_no_other_checkpoints(folder)
            return False
        newest, others = state.model_checkpoint_path, state.all_model_checkpoint_paths
        damages: list[Exception] = []
        for saved in dict.fromkeys([newest, *reversed(others)]):
            try:
                self._restore(session, saver, saved)
            # A file that ends too early is out of range.
            except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
                damages.append(error)
                _log.warning("the checkpoint %s is damaged: %s", saved, error.message)
            else:
                saver.recover_last_checkpoints(others)
                respell_checkpoints(saver, folder.rstrip("/") or "/")
                return True
        raise damages[0]

    def _restore(self, session: Session, saver: Any, path: str) -> None:
        # These set a loaded model to the values it was loaded with.
        if initializers := self._graph.launched.get_collection("saved_model_initializers"):
            session.run(initializers)
        saver.restore(session, path)
        session.take_checkpoint(path)


def _missing_after_local_init(session: Session, scaffold: Any) -> str | None:
    missing = _missing(session, scaffold.ready_for_local_init_op)
    if missing is None and scaffold.local_init_op is not None:
        session.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)
    return missing or _missing(session, scaffold.ready_op)


def _missing(session: Session, op: Any) -> str | None:
    if op is None:
        return None
    try:
        answer = session.run(op)
    except tf.errors.FailedPreconditionError as error:
        lines = [line for line in str(error).splitlines() if "uninitialized" in line]
        if not lines:
            raise
        return lines[0].strip()
    array = np.asarray(answer)
    if answer is None or array.dtype == np.int32 or array.size == 0:
        return None
    if array.dtype == bool:
        is_ready = array.ndim == 0 and array
        return None if is_ready else f"{getattr(op, 'name', op)} is {array.tolist()}"
    return "Variables not initialized: " + ", ".join(map(tf.compat.as_str_any, array.ravel()))

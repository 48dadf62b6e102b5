"""The contract of hooks: their methods, the messages of a run, the session that they see.

``docs/life-cycle.md`` explains these tables of phases and of whole lives; tests compare them with
recorded sessions. A line is a name and its events in order; a name from a line above stands for
that line.

open      each:begin  finalize-graph  create-session  each:after_create_session
run       each:before_run  session-run  each:after_run
bad-run   each:before_run  session-run
recovery  close-session  create-session  each:after_create_session
end       each:end  close-session
failure   each:on_exception  close-session  raises

clean-end                     open  run  run  end
stop-by-hook                  open  run  end
stop-by-caller                open  run  end
end-of-input                  open  run  bad-run  end
run-raises                    open  bad-run  failure
begin-raises                  until:begin  begun:on_exception  raises
after_create_session-raises   each:begin  finalize-graph  create-session  until:after_create_session  close-session  each:on_exception  raises
before_run-raises             open  until:before_run  failure
after_run-raises              open  each:before_run  session-run  until:after_run  failure
end-raises                    open  run  end  raises
thread-raises                 open  run  failure
lost-in-a-run                 open  bad-run  recovery  run  end
lost-in-before_run            open  until:before_run  recovery  run  end
lost-in-after_run             open  each:before_run  session-run  until:after_run  recovery  run  end
lost-in-creation              open  bad-run  close-session  create-session  create-session  each:after_create_session  run  end
lost-in-after_create_session  each:begin  finalize-graph  create-session  until:after_create_session  recovery  run  end
lost-at-the-start             each:begin  finalize-graph  create-session  create-session  each:after_create_session  run  end
lost-for-good                 open  bad-run  recovery  bad-run  recovery  bad-run  failure
"""  # noqa: E501

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from runhooks import arguments
from runhooks.arrays.shards import Share
from runhooks.arrays.trees import as_dict
from runhooks.graph.base import ClosedSessionError, Framework, Resized, StepPart
from runhooks.graph.nest import KnownFetches, map_leaves, structure_key
from runhooks.graph.nodes import Tensor
from runhooks.graph.sources import Epochs
from runhooks.trigger import Due


class SessionRunArgs(NamedTuple):
    """The request of a hook, or of the caller.

    Attributes:
        fetches: A tensor, operation, variable or name, or any nesting of lists, tuples, named
            tuples and dicts of these.
        feed_dict: Values by tensor, or None.
        options: The framework's run options, or None.
    """

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """The results of a run for one hook.

    Attributes:
        results: The values, in the structure of the hook's fetches; None if it asked for nothing.
        options: The framework's run options, or None.
        run_metadata: The framework's run metadata, or None.
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """One call of ``run``, as hooks see it.

    Attributes:
        original_args: The request of the caller of ``run``.
        session: The raw session: a run on it calls no hook.
        next_step: The global step expected after this run: as many more as the previous run made,
            at first 1; the current step if this run makes none. None: unknown. Not in TensorFlow's
            context.
        stop_requested: Whether a hook has asked to stop in this run.
        stop_reason: Why, if it said so.
    """

    __slots__ = ("next_step", "original_args", "session", "stop_reason", "stop_requested")

    def __init__(
        self, original_args: SessionRunArgs, session: RawSession, next_step: int | None = None
    ) -> None:
        self.original_args = original_args
        self.session = session
        self.next_step = next_step
        self.stop_requested = False
        self.stop_reason: str | None = None

    def request_stop(self, reason: str | None = None) -> None:
        """Ask the loop to stop: ``should_stop()`` of the session is true after this run.

        ``reason`` is for the log and ``session.stop_reason``. TensorFlow's context takes none.
        """
        arguments.instance(str, reason=reason)
        self.stop_requested = True
        self.stop_reason = self.stop_reason or reason


class SessionRunHook:
    """Base class of hooks: override what you need. Its methods do nothing.

    The first five methods are those of ``tf.compat.v1.train.SessionRunHook``.

        class StopWhenGood(rh.SessionRunHook):
            def before_run(self, run_context):
                return rh.SessionRunArgs("loss")

            def after_run(self, run_context, run_values):
                if run_values.results < 0.01:
                    run_context.request_stop()


        hooks = [StopWhenGood()]
    """

    #: Whether it is called before all others in every phase.
    first: ClassVar[bool] = False

    #: Whether it is called after all others in every phase.
    last: ClassVar[bool] = False

    #: Which of several ranks call it: ``"all"``, in the same runs, or the ``"chief"`` alone. A
    #: ``Timer`` follows the clock of the chief.
    runs_on: str = "all"

    #: Whether all ranks call a hook of the ``"chief"`` where each holds a part of the model, so
    #: that all read what is asked for. It writes on the chief alone.
    asks_on_all: ClassVar[bool] = False

    #: Its name in messages and checkpoints. None: that of its class, with ``_1`` for a second one.
    hook_name: str | None = None

    #: A dict that gets the seconds that each hook takes, by its name. None: nothing is measured.
    hook_secs: dict[str, float] | None = None

    #: Objects by name, with ``state_dict`` and ``load_state_dict``, to be saved in its place. None:
    #: the hook itself.
    saved_objects: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """Called once, before the session exists; may add to the default graph.

        A second call on the same graph must add nothing.
        """

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        """Called when a session has been created: at the start and after each recovery."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; return what to fetch and feed in that run, or None.

        A request that needs a step of ``rh.torch`` waits for a run in which the caller makes it:
        the hook stays due, and ``after_run`` is not called.
        """
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that succeeded, with the requested values."""

    def end(self, session: RawSession) -> None:
        """Called once when the loop has ended normally; ``session`` can still run."""

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        """Called instead of ``end`` if the loop ends with ``exception``.

        ``session`` is None if none was created or it is lost.
        """

    def next_due(self) -> Due | None:
        """Return when this hook next has something to do; None, the default, means every run.

        Asked when a session opens, and after each run that the hook has taken part in. Until it is
        due, it is not called in runs. If a run takes the step further than expected, only
        ``after_run`` is called, with ``results`` None. A subclass that overrides ``before_run`` or
        ``after_run``, but not this, is called in every run.
        """
        return None

    def watched(self) -> Tensor | None:
        """Return the one tensor that ``before_run`` asks for in every run, or None.

        If no other hook is due, ``watch`` is then called in place of ``before_run`` and
        ``after_run``, at a fraction of their cost. Asked after ``after_create_session``.
        """
        return None

    def watch(self, step: int, value: Any) -> bool | None:
        """Called with the global step after the run and the value; return True to stop."""
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state that checkpoints keep for this hook, by name.

        Values are what JSON can hold, tuples, bytes, dicts with any keys, NumPy numbers, and arrays
        of NumPy, torch and JAX, which are loaded on the CPU or the default device.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; called before ``after_create_session``."""


class StopSignal(Protocol):
    """The part of a ``Coordinator`` that a hook needs."""

    def should_stop(self) -> bool:
        """Return whether threads were asked to stop."""

    def request_stop(self, ex: BaseException | None = None) -> None:
        """Ask threads to stop, because of ``ex`` if given."""


class StopRequest:
    """A request to stop, by any thread or signal handler."""

    def __init__(self) -> None:
        #: The first reason; None: nobody has asked.
        self.reason: str | None = None
        # Reentrant: a signal handler that interrupts a wait would deadlock on a threading.Event.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ask(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self._bell.put(None)

    @property
    def is_by_signal(self) -> bool:
        """Whether a signal asked first: the process may be killed soon."""
        return self.reason in signal.Signals.__members__

    def wait(self, secs: float) -> bool:
        """Wait up to ``secs`` for a request; return whether there is one."""
        end = time.monotonic() + secs
        while self.reason is None and (left := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                # A signal just before the wait does not end it.
                self._bell.get(timeout=min(left, 1.0))
                self._bell.put(None)  # for the next who waits
        return self.reason is not None


class Snapshot(NamedTuple):
    """The state of a session at one moment.

    Attributes:
        arrays: By variable and path in its pytree: of NumPy, or of ranks that save together also
            ``ShardedArray``, and when loaded ``ArraySource``.
        states: Those of hooks, inputs and other objects, by name.
        resized: Of a checkpoint of another number of ranks; else None.
        is_given: Whether whoever loads the arrays may keep their memory.
        metrics: Those of a checkpoint, by name.
    """

    arrays: dict[str, Any]
    states: dict[str, Any]
    resized: Resized | None = None
    is_given: bool = False
    metrics: Mapping[str, float] = MappingProxyType({})

    def only(self, variables: Collection[str]) -> Snapshot:
        """Return the same with the arrays of ``variables`` alone."""
        below = tuple(f"{name}/" for name in variables)
        kept = {key: it for key, it in self.arrays.items() if f"{key}/".startswith(below)}
        return self._replace(arrays=kept)


class PreparedRun:
    """A run of some fetches and feeds in one session.

    Attributes:
        leaf: This very object as fetches asks for this run.
        is_of: Returns whether fetches ask for it, as far as is quickly said.
        fed: The keys of the feed_dict, or None.
        steps: By how much it increases the global step.
        off_steps: How often it can be made before a hook is due; 0: unknown.
    """

    __slots__ = ("fed", "is_of", "leaf", "off_steps", "steps")

    def __init__(self, fetches: Any, feed_keys: Iterable[Any], steps: int = 0) -> None:
        self.steps = steps
        self.off_steps = 0.0
        self.fed: Any = dict.fromkeys(feed_keys).keys() or None
        known = KnownFetches(fetches)
        self.leaf: Any = known.leaf
        self.is_of: Callable[[Any], bool] = known.is_the_same_as

    def is_fed(self, feed_dict: Any) -> bool:
        return type(feed_dict) is dict and feed_dict.keys() == self.fed

    def foresee(self, off_steps: float) -> None:
        """Set ``off_steps``, if it is noticed when anything else looks at variables."""

    def again(self, feed_dict: Any) -> Any:
        raise NotImplementedError


class CallableRuns:
    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        """Return the values of ``fetches``, in the same structure."""
        raise NotImplementedError

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Return a function that calls ``run``.

        It takes the values of ``feed_list``, a list or tuple of the keys of a feed_dict, in this
        order, and ``options`` and ``run_metadata`` by keyword, whatever ``accept_options``.

        Raises:
            TypeError: For another ``feed_list``; by the function, for a wrong number of values.
            ValueError: If a key is twice in ``feed_list``.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError(f"feed_list must be a list or tuple of tensors, got {feed_list!r}")
        keys = tuple(feed_list or ())
        if len(set(keys)) < len(keys):
            raise ValueError(f"feed_list must have each tensor once, got {list(keys)}")
        run = self.run
        structure_key(fetches)  # for its error
        fetches = map_leaves(lambda leaf: leaf, fetches)  # lists of the caller may change

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            if len(values) != len(keys):
                raise TypeError(
                    f"the function takes {len(keys)} values, of {list(keys)}, got {len(values)}"
                )
            fed = dict(zip(keys, values, strict=True)) if keys else None
            return run(fetches, fed, options, run_metadata)

        return call


class Stateful(Protocol):
    """An object whose state checkpoints keep beside the variables."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any: ...


class RawSession(CallableRuns):
    """The base of the sessions of every framework: all that a hook may ask of one.

    Attributes:
        recoveries: How many sessions of the monitored session were lost before this one.
        stop_request: Asked when the monitored session is to stop, as in a long wait.
        runs: The number of runs that have succeeded.
        changes: The number of those that may have changed a variable; 0: unknown.
        input_secs: The seconds spent waiting for inputs, since ``time_inputs()``.
        non_training_secs: Those spent on evaluations and the like, which add them.
        input_error: The error by which an input has ended a run before it changed anything.
        checkpoint_metrics: The metrics of ``checkpoint``, by name.
        state_error: Why its state is not saved, such as a NaN in it.
        ended_apart: Whether its ranks have ended at different global steps; known before ``end``.
        has_framework_saver: Whether the framework's own saver writes its checkpoints.
        makes_one_run_at_a_time: Whether runs of several threads wait for each other, hooks and all.
    """

    has_framework_saver: ClassVar[bool] = False
    makes_one_run_at_a_time: ClassVar[bool] = True
    runs: int = 0
    changes: int = 0
    input_secs: float = 0.0
    input_error: Exception | None = None
    ended_apart: bool = False

    def __init__(self) -> None:
        self.recoveries = 0
        self.stop_request = StopRequest()
        self.non_training_secs = 0.0
        self.state_error: Exception | None = None
        self._checkpoint: str | None = None
        self._changes_at_checkpoint = 0
        self.checkpoint_metrics: Mapping[str, float] = {}
        self._attached: dict[str, Stateful] = {}
        self._loaded_states: Mapping[str, Any] = {}

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint that it was last restored from, or saved whole as."""
        return self._checkpoint

    @checkpoint.setter
    def checkpoint(self, path: str | None) -> None:
        self._checkpoint, self._changes_at_checkpoint = path, self.changes

    def is_saved_as(self, path: str) -> bool:
        """Return whether nothing has changed since ``path`` was restored, or saved."""
        return path == self._checkpoint and self.changes == self._changes_at_checkpoint

    def note_unsaved(self) -> None:
        """Note a change that no run has made."""
        self._changes_at_checkpoint = -1

    @property
    def graph(self) -> Any:
        """Its graph: a ``runhooks.Graph``, or a framework's own."""
        raise NotImplementedError

    @property
    def engine(self) -> Framework:
        """The framework of its graph."""
        engine: Framework = self.graph.engine
        return engine

    @property
    def global_step(self) -> int | None:
        """The global step, without a run; None if the graph has none."""
        raise NotImplementedError

    @property
    def epochs(self) -> Epochs | None:
        """How many epochs it has trained on; None if nothing says when one ends."""
        epochs = Epochs(self.graph, lambda: self.global_step)
        return epochs if epochs.is_known else None

    @property
    def epoch(self) -> int | None:
        """The epoch of the last step, from 1; 0 before the first step; None if ``epochs`` is."""
        epochs = self.epochs
        return None if epochs is None else epochs.number

    def check_no_hooks(self, hooks: Any) -> None:
        """Raise ValueError unless ``hooks``, an argument of ``run``, are none."""
        if hooks is not None and hooks is not False and hooks != []:
            raise ValueError(
                f"hooks must be False, got {hooks!r}: the session that hooks get calls none; "
                "call run of the monitored session for a run with hooks"
            )

    def find_run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> PreparedRun | None:
        """Return the run of ``fetches``, or None if only ``run`` makes it; raise as ``run``."""
        return None

    def after_own_run(self) -> AbstractContextManager[None]:
        """Return a context in which ``global_step`` is as of this thread's last run."""
        return nullcontext()

    def refresh_step(self) -> int | None:
        """Return the global step, also if others have increased it; may cost a run."""
        return self.global_step

    def wait(self) -> None:
        """Wait until the device has computed all runs; raise its error."""

    def found_closed(self, error: Exception) -> bool:
        """Return whether ``error`` says that this very session is closed."""
        return isinstance(error, ClosedSessionError) and error.owner is self

    def close(self) -> None:
        """Close it; may be called again."""
        raise NotImplementedError

    def new_records(self) -> tuple[Any, Any] | None:
        """Return empty run options and metadata, if the framework has them."""
        return None

    def merge_options(self, given: Mapping[str, Any]) -> Any:
        """Return run options, by who gives them, as one; RuntimeError if it cannot."""
        if len(given) > 1:
            raise RuntimeError(f"run options are given by {' and '.join(given)}: only one may")
        return next(iter(given.values()), None)

    def inputs_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Any]:
        """Return the inputs that ``fetches`` draw from when ``feed_keys`` are fed."""
        return []

    def step_part(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
        """Return what a run of ``fetches`` does to the global step; raise as ``run``."""
        part: StepPart = self.graph.step_part(fetches, feed_keys)
        return part

    def may_share(self, source: Any) -> bool:
        """Return whether training and evaluation may both draw from the input ``source``."""
        return False

    def rewind(self, *fetches: Any, to: Any = None) -> Any:
        """Let inputs of ``fetches`` start over, or go on at ``to``; return where they were."""

    def time_inputs(self) -> None:
        """Add what inputs take to ``input_secs``, from now on."""

    def snapshot(
        self, into: Mapping[str, np.ndarray[Any, Any]] | None = None, share: Share | None = None
    ) -> Snapshot:
        """Return its whole state, or its ``share`` of several ranks, waiting for the device.

        With ``into``, arrays by name to copy into where they fit, even if empty, the result is
        independent of later runs. Else it may share memory with variables.
        """
        raise NotImplementedError

    def saved_names(self) -> Collection[str]:
        """Return the names of variables and other objects in checkpoints."""
        raise NotImplementedError

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        """Take in ``snapshot``, or ``only`` some variables of it; ValueError if it does not fit."""
        raise NotImplementedError

    def read(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of that name in checkpoints, or below it, by whole name; makes no run.

        Names are such as ``"state/params"``, and of ``rh.torch`` ``"learning_rate"``. ValueError if
        nothing has that name.
        """
        raise NotImplementedError

    def assign(self, values: Mapping[str, Any]) -> None:
        """Give parts of variables or objects new values, between runs: all, or none.

        ``values`` are numbers or arrays of the same shapes and dtypes, by name. ValueError if
        nothing has a name, or a value does not fit.
        """
        raise NotImplementedError

    def substituted(self, places: Mapping[str, str]) -> AbstractContextManager[None]:
        """Put values in the places of others inside the ``with`` block; then all is as before.

        ``{"state/params": "ema/state/params"}`` puts averages in the place of parameters, whose
        structure and shapes they must have.
        ValueError as in ``assign``.
        """
        raise NotImplementedError

    def save_checkpoint(
        self, saver: Any, save_path: str | os.PathLike[str], step: int, *, save_graph_def: bool
    ) -> str:
        return str(saver.save(self, save_path, global_step=step))

    def write_graph(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph to ``folder``, if the framework has a format for it."""

    def attach(self, name: str, saved: Stateful) -> None:
        """Save the state of ``saved`` by ``name``, and restore it; ValueError for a taken name."""
        if name in self._attached:
            raise ValueError(f"something is attached as {name!r} already: give it another name")
        self._attached[name] = saved
        if name in self._loaded_states:
            self.restore_state(saved, self._loaded_states[name])

    def detach(self, name: str) -> None:
        """Undo ``attach``."""
        self._attached.pop(name, None)

    def attached_states(self) -> dict[str, dict[str, Any]]:
        return {name: as_dict(saved.state_dict()) for name, saved in self._attached.items()}

    def take_states(self, states: Mapping[str, Any]) -> None:
        """Take the states of a checkpoint, and restore what is attached."""
        self._loaded_states = states
        for name, saved in self._attached.items():
            if name in states:
                self.restore_state(saved, states[name])

    def restore_state(self, saved: Stateful, state: Mapping[str, Any]) -> None:
        saved.load_state_dict(state)

    def unclaimed_states(self) -> dict[str, Any]:
        """Return the restored states of what is not attached, by name."""
        states = sorted(self._loaded_states.items())
        return {name: state for name, state in states if name not in self._attached}

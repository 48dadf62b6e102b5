"""The contract of hooks: their methods, the messages of a run, the session that they see.

The life cycle says which methods are called, and when; the only place that does. The test suite
compares the two tables that end this text with recorded sessions on every engine. Each line is a
name and the events it stands for, in order; a name from a line above stands for that whole line.
The first table has phases, the second whole life cycles.

``each:`` calls the method of every hook, in the order in which the hooks were given; hooks whose
``first`` is true come before all others, those whose ``last`` is true after them. ``until:`` calls
it up to the hook that raises, ``begun:`` for the hooks whose ``begin`` has returned. A hook that
says when it is next due (``SessionRunHook.next_due``) is not called in the runs until then.

    open        The session is made. ``begin`` may add to the default graph; after it the scaffold
                makes the graph final, and adding to it raises RuntimeError.
    run         One call of ``run``: the fetches of the caller and of all hooks go into one
                session-run.
    bad-run     The session-run raises: no hook's ``after_run`` is called.
    recovery    The session is lost: a new one is created, restored from the latest checkpoint.
    end         The ``with`` block ended well, by OutOfRangeError or StopIteration, or ``close`` was
                called. ``end`` of every hook is called, even if another raises.
    failure     The ``with`` block ended by any other exception: no ``end``.
    raises      The exception goes on to the caller.

    stop-by-hook        A hook called ``run_context.request_stop()``, which only makes
                        ``should_stop()`` true; ``stop-by-caller``: the caller called
                        ``session.request_stop()``.
    thread-raises       A thread under the coordinator failed: ``should_stop()`` is true, and
                        ``run``, ``close`` and the end of the ``with`` block raise it.
    lost-in-a-run       The session is replaced and the run repeated; the same happens if a hook
                        finds the session lost, in ``before_run`` or ``after_run``.
    lost-in-creation    A session is lost, and the first attempt to create another fails too.
    lost-at-the-start   The first attempt of all to create a session fails.
    lost-for-good       One failure more than the ``RecoveryPolicy`` allows (two here), without a
                        step in between.

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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from runhooks import arguments
from runhooks.arrays.shards import Share
from runhooks.arrays.trees import as_dict
from runhooks.graph import nest
from runhooks.graph.base import ClosedSessionError, Framework, Resized, StepPart
from runhooks.graph.epochs import Epochs
from runhooks.graph.nest import KnownFetches
from runhooks.trigger import Due

if TYPE_CHECKING:
    from runhooks.graph.nodes import Tensor


class SessionRunArgs(NamedTuple):
    """The request of a hook, or of the caller: the arguments of ``session.run``.

    As ``tf.compat.v1.train.SessionRunArgs``.

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
        options: The framework's run options; None where it has none.
        run_metadata: The framework's run metadata; None where it has none.
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """One call of ``run``, as hooks see it: the argument of ``before_run`` and ``after_run``.

    Attributes:
        original_args: The request of the caller of ``run``.
        session: The raw session: a run on it calls no hook.
        next_step: The expected global step after this run; None if unknown. An estimate: one more
            than the current step, or as many more as the previous run made; the current step if
            this run does not increase it. TensorFlow's context does not have it.
        stop_requested: Whether a hook has asked to stop in this run.
        stop_reason: The reason of the hook that asked to stop, if it gave one.
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

        Args:
            reason: Why, in a few words; shown after the hook's name in ``session.stop_reason`` and
                in the log. TensorFlow's context does not have it.
        """
        arguments.instance(str, reason=reason)
        self.stop_requested = True
        self.stop_reason = self.stop_reason or reason


class SessionRunHook:
    """Base class of hooks: extend it and override what you need. Its methods do nothing.

    The first five methods are those of ``tf.compat.v1.train.SessionRunHook`` and keep its
    contract; ``runhooks.contract`` says when each is called. The rest is optional and
    specific to runhooks: a hook written for TensorFlow needs none of it.

        class StopWhenGood(rh.SessionRunHook):
            def before_run(self, run_context):
                return rh.SessionRunArgs("loss")

            def after_run(self, run_context, run_values):
                if run_values.results < 0.01:
                    run_context.request_stop()


        hooks = [StopWhenGood()]
    """

    #: Whether this hook is called before all others in every phase, as one that evaluates is, so
    #: that every hook that acts on a step has the results of that step.
    first: ClassVar[bool] = False

    #: Whether this hook is called after all others in every phase, as one that saves checkpoints
    #: must be, so that a checkpoint holds what the other hooks made of the step.
    last: ClassVar[bool] = False

    #: Where this hook is called if several ranks train together: ``"all"`` ranks, in the same runs,
    #: or the ``"chief"`` alone, as one that only writes. A hook of all ranks that acts by seconds
    #: goes by a ``Timer``, which follows the clock of the chief.
    runs_on: str = "all"

    #: Whether all ranks call a hook of the ``"chief"`` where each holds a part of the model, so
    #: that all read what it, or another hook, asks for in the same run. It still writes on the
    #: chief alone.
    asks_on_all: ClassVar[bool] = False

    #: The name of this hook in messages and in checkpoints, by which its state is found again.
    #: None: the name of its class, with ``_1`` added for a second hook of that class.
    hook_name: str | None = None

    #: For a hook that measures hooks: the session adds the seconds that the calls of each hook
    #: take to this dict, by the hook's name. None: nothing is measured.
    hook_secs: dict[str, float] | None = None

    #: For a hook that keeps other objects in checkpoints, by name: each has ``state_dict`` and
    #: ``load_state_dict``. None: the hook itself is kept, by its own name.
    saved_objects: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """Called once, before the session exists.

        The graph to be launched is the default graph; this is the last chance to add to it. A
        second call on the same graph must add nothing.
        """

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        """Called when a session has been created: at the start and after every recovery."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; return what to fetch and feed in that same run, or None.

        A request that needs a step of ``rh.torch`` which the caller's fetches do not make waits
        for the next run that does: the hook stays due, and ``after_run`` is not called.
        """
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that succeeded; ``run_values.results`` has the requested values."""

    def end(self, session: RawSession) -> None:
        """Called once when the loop has ended normally, with a session that can still run."""

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        """Called instead of ``end`` if the loop ends with ``exception``.

        ``session`` is None if it could not be created or is lost.
        """

    def next_due(self) -> Due | None:
        """Return when this hook next has something to do; None, the default, means every run.

        Asked when a session opens, and after each run that the hook has taken part in. Until it is
        due, neither ``before_run`` nor ``after_run`` is called. If a run takes the step further
        than expected, only ``after_run`` is called, with ``results`` None. A subclass that
        overrides ``before_run`` or ``after_run``, but not this method, is called in every run.
        """
        return None

    def watched(self) -> Tensor | None:
        """Return the one tensor that ``before_run`` asks for in every run, or None.

        If no other hook is due in a run, ``watch`` is then called instead of ``before_run`` and
        ``after_run``, at a fraction of their cost. Called after ``after_create_session``.
        """
        return None

    def watch(self, step: int, value: Any) -> bool | None:
        """Called with the global step after the run and the value of ``watched()``.

        Return True to ask the loop to stop.
        """
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state that checkpoints keep for this hook, by name; it may be empty.

        Values may be anything that JSON can hold, tuples, bytes, dicts with keys other than str,
        NumPy numbers and arrays, and torch and JAX arrays. They are restored as equal values;
        arrays on the CPU or the default device.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned. Called before ``after_create_session``."""


class StopSignal(Protocol):
    """The part of a coordinator that a hook needs."""

    def should_stop(self) -> bool:
        """Return whether the threads of the session were asked to stop."""
        ...

    def request_stop(self, ex: BaseException | None = None) -> None:
        """Ask them to stop, because of ``ex`` if given."""
        ...


_LOOK_SECS = 1.0


class StopRequest:
    """A request to stop, made by any thread or signal handler, that ends a ``wait``.

    A signal handler may interrupt any line of the very thread that waits, and would deadlock on the
    lock of a ``threading.Event``. ``SimpleQueue.put`` is reentrant.
    """

    def __init__(self) -> None:
        #: Who asked first, and why; None if nobody has.
        self.reason: str | None = None
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ask(self, reason: str) -> None:
        """Ask to stop. The first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self._bell.put(None)

    @property
    def is_by_signal(self) -> bool:
        """Whether a signal asked first, so that the process may be killed soon."""
        return self.reason in signal.Signals.__members__

    def wait(self, secs: float) -> bool:
        """Wait up to ``secs`` seconds for a request; return whether there is one."""
        end = time.monotonic() + secs
        while self.reason is None and (left := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                # A signal that comes just before Python waits for the lock does not end that wait.
                self._bell.get(timeout=min(left, _LOOK_SECS))
                self._bell.put(None)  # for the next who waits
        return self.reason is not None


class Snapshot(NamedTuple):
    """The state of a session at one moment.

    Attributes:
        arrays: By the name of the variable, then ``/`` and the path inside the variable's pytree,
            such as ``"state/params/conv/kernel"``. Arrays of NumPy; of several ranks that save
            together, each may also take ``ShardedArray`` objects, and gets ``ArraySource`` objects.
        states: The states of hooks, inputs and other objects by name, as
            ``SessionRunHook.state_dict`` returns them.
        resized: Of a checkpoint that another number of ranks has saved; else None.
        is_given: Whether nothing else uses the memory of the arrays: whoever loads them may keep
            them without a copy.
        metrics: The metrics of a checkpoint by name.
    """

    arrays: dict[str, Any]
    states: dict[str, Any]
    resized: Resized | None = None
    is_given: bool = False
    metrics: Mapping[str, float] = MappingProxyType({})

    def only(self, variables: Collection[str]) -> Snapshot:
        """Return the same with the arrays of the named variables alone.

        Raises:
            ValueError: For a variable that has no array here.
        """
        missing = [
            name for name in variables if not any(_belongs(key, name) for key in self.arrays)
        ]
        if missing:
            raise ValueError(f"no variable of the session is named {', '.join(map(repr, missing))}")
        kept = {
            key: array
            for key, array in self.arrays.items()
            if any(_belongs(key, name) for name in variables)
        }
        return self._replace(arrays=kept)


def _belongs(key: str, variable: str) -> bool:
    return key == variable or key.startswith(f"{variable}/")


class PreparedRun:
    """A run of some fetches, with some feeds, in one session.

    Attributes:
        leaf: Whoever gives this very object as fetches asks for this run.
        is_of: Returns whether this is a run of the fetches it is given, as far as that is quickly
            said.
        fed: None if nothing is fed; else the keys of the feed_dict.
        steps: By how much it increases the global step.
        off_steps: How often it can be made before a hook is due, as far as steps and runs go. 0 if
            that is unknown, as when anything else has looked at variables since.
    """

    __slots__ = ("fed", "is_of", "leaf", "off_steps", "steps")

    def __init__(self, fetches: Any, feed_keys: Iterable[Any], steps: int = 0) -> None:
        self.steps = steps
        self.off_steps = 0.0
        keys = dict.fromkeys(feed_keys)
        self.fed: Any = keys.keys() if keys else None
        known = KnownFetches(fetches)
        self.leaf: Any = known.leaf
        self.is_of: Callable[[Any], bool] = known.is_the_same_as

    def is_fed(self, feed_dict: Any) -> bool:
        """Return whether ``feed_dict`` feeds what this run is fed, as far as is quickly said."""
        return type(feed_dict) is dict and feed_dict.keys() == self.fed

    def foresee(self, off_steps: float) -> None:
        """Set ``off_steps``, where it is noticed if anything else looks at variables."""

    def again(self, feed_dict: Any) -> Any:
        """Make the run, as ``RawSession.run`` does; return the values of the fetches."""
        raise NotImplementedError


class CallableRuns:
    """The part of a session that makes functions of its runs. A subclass provides ``run``."""

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        """Compute ``fetches`` and return their values in the same structure."""
        raise NotImplementedError

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Return a function that runs ``fetches``, as TensorFlow's sessions do.

        Each call of it is a call of ``run``, with all that this does.

        Args:
            fetches: As for ``run``.
            feed_list: A list or tuple of the keys of a feed_dict. The function takes their values,
                in this order, and ``options`` and ``run_metadata`` by keyword. None: it takes none.
            accept_options: Accepted for TensorFlow's programs: options are taken in any case.

        Raises:
            TypeError: If ``feed_list`` is not a list or tuple. The function raises it for another
                number of values than ``feed_list`` has keys.
            ValueError: If a key is twice in ``feed_list``.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError(f"feed_list must be a list or tuple of tensors, got {feed_list!r}")
        keys = tuple(feed_list or ())
        if len(dict.fromkeys(keys)) < len(keys):
            raise ValueError(f"feed_list must have each tensor once, got {list(keys)}")
        run = self.run
        # A list or dict of the caller may change.
        nest.structure_key(fetches)  # or the error would be of its levels
        fetches = nest.map_leaves(lambda leaf: leaf, fetches)

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
    """The base of the sessions of every framework: all that a layer or a hook may ask of one.

    A subclass provides ``graph``, ``global_step``, ``run`` and ``close``; what else it does not
    override has the default of a framework that has nothing of the kind.

    Attributes:
        recoveries: How many sessions of the monitored session were lost before this one.
        stop_request: Asked when the monitored session is to stop; a long wait or an evaluation
            listens to it.
        runs: The number of runs that have succeeded.
        changes: The number of those that may have changed a variable; 0 where that is unknown.
        input_secs: The seconds spent waiting for elements of inputs, since ``time_inputs()``.
        non_training_secs: The seconds that went into something other than training; whoever
            spends some, as on an evaluation, adds them.
        input_error: By which an input has ended a run before it changed anything; None: by none.
        checkpoint_metrics: The metrics that ``checkpoint`` has, by name.
        state_error: By which its state is not worth saving, as a NaN that a hook has found in it;
            None: no such error is known.
        ended_apart: Whether its ranks have ended at different global steps, so that there is no
            state of all to save. Each rank has the same answer, before ``end`` of the hooks.
    """

    #: Whether the framework's own saver writes its checkpoints, in place of a ``runhooks.Saver``.
    has_framework_saver: ClassVar[bool] = False

    #: Whether its runs wait for each other, so that those of several threads do, hooks and all.
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
        """The path of the checkpoint that it was restored from, or saved whole as, last."""
        return self._checkpoint

    @checkpoint.setter
    def checkpoint(self, path: str | None) -> None:
        self._checkpoint, self._changes_at_checkpoint = path, self.changes

    def is_saved_as(self, path: str) -> bool:
        """Return whether nothing has changed since ``path`` was restored, or saved."""
        return path == self._checkpoint and self.changes == self._changes_at_checkpoint

    def note_unsaved(self) -> None:
        """Note a change that no run has made, as of what a hook keeps: it is in no checkpoint."""
        self._changes_at_checkpoint = -1

    @property
    def graph(self) -> Any:
        """The graph it runs: a ``runhooks.Graph``, or a framework's own graph."""
        raise NotImplementedError

    @property
    def engine(self) -> Framework:
        """The framework that computes its graph."""
        engine: Framework = self.graph.engine
        return engine

    @property
    def global_step(self) -> int | None:
        """The global step, known on the host without a run; None if the graph has none."""
        raise NotImplementedError

    @property
    def epochs(self) -> Epochs | None:
        """How many epochs it has trained on; None: nothing says when one ends."""
        epochs = Epochs(self.graph, lambda: self.global_step)
        return epochs if epochs.is_known else None

    @property
    def epoch(self) -> int | None:
        """The number of the epoch that the last step belongs to, from 1; 0 before the first step.

        None: nothing says when an epoch ends; see ``docs/epochs.md``.
        """
        epochs = self.epochs
        return None if epochs is None else epochs.number

    def check_no_hooks(self, hooks: Any) -> None:
        """Raise ValueError unless ``hooks``, which ``run`` was given, are none."""
        if hooks is not None and hooks is not False and hooks != []:
            raise ValueError(
                f"hooks must be False, got {hooks!r}: the session that hooks get calls none; "
                "call run of the monitored session for a run with hooks"
            )

    def find_run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> PreparedRun | None:
        """Return the run of ``fetches``, to be made without ``run``; None: only ``run`` makes it.

        Raises:
            ValueError, TypeError: As ``run``.
        """
        return None

    def after_own_run(self) -> AbstractContextManager[None]:
        """Return a context in which ``global_step`` is the one that this thread's last run led to.

        Where runs overlap, the session's may be further.
        """
        return nullcontext()

    def refresh_step(self) -> int | None:
        """Return the global step as other processes may have made it; costs a run where needed."""
        return self.global_step

    def wait(self) -> None:
        """Return when the device has computed all that was run; raise the error it failed with."""

    def found_closed(self, error: Exception) -> bool:
        """Return whether a run has raised ``error`` because this very session is closed."""
        return isinstance(error, ClosedSessionError) and error.owner is self

    def close(self) -> None:
        """Release what it holds. May be called again."""
        raise NotImplementedError

    def new_records(self) -> tuple[Any, Any] | None:
        """Return empty run options and run metadata; None if the framework has neither."""
        return None

    def merge_options(self, given: Mapping[str, Any]) -> Any:
        """Return the run options of several parties, by the party's name, as one.

        Raises:
            RuntimeError: If there are several, and the framework cannot merge them.
        """
        if len(given) > 1:
            raise RuntimeError(f"run options are given by {' and '.join(given)}: only one may")
        return next(iter(given.values()), None)

    def inputs_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> list[Any]:
        """Return the inputs that ``fetches`` draw from when ``feed_keys`` are fed."""
        return []

    def step_part(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
        """Return what a run of ``fetches`` does to the global step; raise as ``run`` does."""
        part: StepPart = self.graph.step_part(fetches, feed_keys)
        return part

    def may_share(self, source: Any) -> bool:
        """Return whether a training and its evaluation may both draw from the input ``source``."""
        return False

    def rewind(self, *fetches: Any, to: Any = None) -> Any:
        """Let the inputs of ``fetches`` start over at the next run that needs them.

        Returns where they were, for a call that lets them go on there: ``rewind(data, to=before)``.
        """

    def time_inputs(self) -> None:
        """Add the seconds that inputs take to ``input_secs`` from now on."""

    def snapshot(
        self,
        into: Mapping[str, np.ndarray[Any, Any]] | None = None,
        share: Share | None = None,
    ) -> Snapshot:
        """Return its whole state, waiting for the device.

        Args:
            into: Arrays by name, to copy into where they fit. If given, even empty, the result is
                independent of later runs; if None, it may share the variables' memory.
            share: Which of several ranks this is, all of which take a snapshot. It then holds what
                this rank has to write. None: a process alone.
        """
        raise NotImplementedError

    def saved_names(self) -> Collection[str]:
        """Return the names of its variables, and of other objects, that checkpoints hold."""
        raise NotImplementedError

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        """Take ``snapshot`` in, whole or not at all; if ``only`` is given, these variables alone.

        Raises:
            ValueError: If it does not fit the variables of the session.
        """
        raise NotImplementedError

    def read(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the present values of a variable or object, or of a part of one; no run is made.

        Args:
            name: As checkpoints have it, such as ``"state/opt_state/hyperparams/learning_rate"`` or
                ``"state/params"``; of a graph of ``rh.torch`` also ``"learning_rate"``.

        Returns:
            The arrays of that name, or below it, by their whole names.

        Raises:
            ValueError: If nothing has that name.
        """
        raise NotImplementedError

    def assign(self, values: Mapping[str, Any]) -> None:
        """Give parts of variables or objects new values, between runs: all of them, or none.

        Args:
            values: Numbers or arrays by the whole names that ``read`` returns. Shapes and dtypes
                stay as they are.

        Raises:
            ValueError: If nothing has a name, or if a value does not fit. Nothing is changed then.
        """
        raise NotImplementedError

    def substituted(self, places: Mapping[str, str]) -> AbstractContextManager[None]:
        """Put values in the places of others inside the ``with`` block, as for an evaluation.

        What stood there before comes back, whatever is raised: it is no change.

        Args:
            places: The names of variables, objects or parts by the names of those that give way to
                them, ``{"state/params": "ema/state/params"}``; of the same structure and shapes.

        Raises:
            ValueError: If nothing has a name, or if a value does not fit.
        """
        raise NotImplementedError

    def save_checkpoint(
        self, saver: Any, save_path: str | os.PathLike[str], step: int, *, save_graph_def: bool
    ) -> str:
        """Let ``saver`` save this session; return the path of the checkpoint."""
        return str(saver.save(self, save_path, global_step=step))

    def write_graph(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph to a file of the framework's own in ``folder``, if it has any."""
        return

    def attach(self, name: str, saved: Stateful) -> None:
        """Save the state of ``saved`` with the variables from now on.

        If a state of that name was restored, ``saved`` is given it at once.

        Raises:
            ValueError: If ``name`` is taken.
        """
        if name in self._attached:
            raise ValueError(f"something is attached as {name!r} already: give it another name")
        self._attached[name] = saved
        if name in self._loaded_states:
            self.restore_state(saved, self._loaded_states[name])

    def detach(self, name: str) -> None:
        """Undo ``attach``."""
        self._attached.pop(name, None)

    def attached_states(self) -> dict[str, dict[str, Any]]:
        """Return the states of what is attached, by name; an empty one is a state, too."""
        return {name: as_dict(saved.state_dict()) for name, saved in self._attached.items()}

    def take_states(self, states: Mapping[str, Any]) -> None:
        """Take the states of a checkpoint, and give those that are attached theirs."""
        self._loaded_states = states
        for name, saved in self._attached.items():
            if name in states:
                self.restore_state(saved, states[name])

    def restore_state(self, saved: Stateful, state: Mapping[str, Any]) -> None:
        """Give ``saved`` the state that a checkpoint has for it."""
        saved.load_state_dict(state)

    def unclaimed_states(self) -> dict[str, Any]:
        """Return the restored states that belong to nothing attached here, by name, sorted."""
        unclaimed = self._loaded_states.keys() - self._attached.keys()
        return {name: self._loaded_states[name] for name in sorted(unclaimed)}

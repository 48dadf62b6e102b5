"""``RawSession``: a session with no hooks around it, as hooks and session layers see it."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from runhooks.arrays.shards import Share
from runhooks.graph import nest
from runhooks.graph.base import ClosedSessionError, Framework, StepPart
from runhooks.graph.epochs import Epochs
from runhooks.graph.nest import KnownFetches
from runhooks.graph.objects import Resized

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
    """

    arrays: dict[str, Any]
    states: dict[str, Any]
    resized: Resized | None = None
    is_given: bool = False

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
        state_error: By which its state is not worth saving, as a NaN that a hook has found in it;
            None: no such error is known.
    """

    #: Whether the framework's own saver writes its checkpoints, in place of a ``runhooks.Saver``.
    has_framework_saver: ClassVar[bool] = False

    #: Whether its runs wait for each other, so that those of several threads do, hooks and all.
    makes_one_run_at_a_time: ClassVar[bool] = True

    runs: int = 0
    changes: int = 0
    input_secs: float = 0.0
    input_error: Exception | None = None

    def __init__(self) -> None:
        self.recoveries = 0
        self.stop_request = StopRequest()
        self.non_training_secs = 0.0
        self.state_error: Exception | None = None
        self._checkpoint: str | None = None
        self._changes_at_checkpoint = 0
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

    def rewind(self, *fetches: Any) -> None:
        """Let the inputs of ``fetches`` start over at the next run that needs them."""

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
        """Return the states of what is attached, by name; those that are empty are left out."""
        states = {name: dict(saved.state_dict()) for name, saved in self._attached.items()}
        return {name: state for name, state in states.items() if state}

    def take_states(self, states: Mapping[str, Any]) -> None:
        """Take the states of a checkpoint, and give those that are attached theirs."""
        self._loaded_states = states
        for name, saved in self._attached.items():
            if name in states:
                self.restore_state(saved, states[name])

    def restore_state(self, saved: Stateful, state: Mapping[str, Any]) -> None:
        """Give ``saved`` the state that a checkpoint has for it."""
        saved.load_state_dict(state)

    def unclaimed_states(self) -> list[str]:
        """Return the names of restored states that belong to nothing attached here, sorted."""
        return sorted(self._loaded_states.keys() - self._attached.keys())


class StopSignal(Protocol):
    """The part of a coordinator that a hook needs."""

    def should_stop(self) -> bool:
        """Return whether the threads of the session were asked to stop."""
        ...

    def request_stop(self, ex: BaseException | None = None) -> None:
        """Ask them to stop, because of ``ex`` if given."""
        ...

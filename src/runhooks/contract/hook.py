"""``SessionRunHook``: the base class of hooks, and the messages between a session and its hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from runhooks import arguments
from runhooks.contract.session import RawSession, StopSignal
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
    contract; ``runhooks.contract.life_cycle`` says when each is called. The rest is optional and
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
        """Return the state that checkpoints keep for this hook, by name; empty for nothing.

        Values may be anything that JSON can hold, tuples, bytes, dicts with keys other than str,
        NumPy numbers and arrays, and torch and JAX arrays. They are restored as equal values;
        arrays on the CPU or the default device.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned. Called before ``after_create_session``."""

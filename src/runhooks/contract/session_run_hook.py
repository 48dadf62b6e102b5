"""``SessionRunHook``: the base class of hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from runhooks.contract.run import SessionRunArgs, SessionRunContext, SessionRunValues
from runhooks.contract.session import RawSession, StopSignal
from runhooks.trigger import Due

if TYPE_CHECKING:
    from runhooks.graph.tensor import Tensor


class SessionRunHook:
    """Extend it and override what you need; every method here does nothing.

    The first five methods are those of ``tf.compat.v1.train.SessionRunHook`` and keep its
    contract; ``runhooks.contract.life_cycle`` says when each is called. The rest is an extension
    of runhooks and optional: a hook written for TensorFlow needs none of it.

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
        """Called once when the loop has ended well, with a session that can still run."""

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        """Called where ``end`` is not: the loop ended by ``exception``.

        ``session`` is None if it could not be created or is lost.
        """

    def next_due(self) -> Due | None:
        """Return when this hook next has something to do; None, the default: in every run.

        Asked when a session opens, and after each run that the hook has taken part in. Until it is
        due, neither ``before_run`` nor ``after_run`` is called. If a run takes the step further
        than expected, ``after_run`` alone is called, with ``results`` None. A subclass that
        overrides ``before_run`` or ``after_run``, but not this method, is called in every run.
        """
        return None

    def watched(self) -> Tensor | None:
        """Return the tensor that ``before_run`` asks for in every run, if it is always the same.

        In runs in which no other hook is due, ``watch`` is then called in place of ``before_run``
        and ``after_run``, at a fraction of their cost. Called after ``after_create_session``.
        """
        return None

    def watch(self, step: int, value: Any) -> bool | None:
        """Called with the global step that the run has led to, and the value of ``watched()``.

        Return True to ask the loop to stop.
        """
        return None

    def warm_up(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Return what ``before_run`` will ask for, so that it is compiled before the first run.

        Called by ``warm_up`` of a monitored session, after ``after_create_session``. What the hook
        will run by itself, it can give to ``run_context.session.warm_up``. None: nothing, or it is
        not known.
        """
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps of this hook, by name; empty for nothing.

        Values may be whatever JSON has, tuples, bytes, dicts with keys other than str, numbers and
        arrays of NumPy, and arrays of torch and JAX. They come back equal, arrays on the CPU or the
        default device.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned. Called before ``after_create_session``."""

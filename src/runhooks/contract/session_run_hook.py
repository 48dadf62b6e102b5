"""``SessionRunHook``: what rides along with a session's runs."""

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
    contract; ``runhooks.contract.life_cycle`` says when each is called. The rest is ours and
    optional: a hook written for TensorFlow needs none of it.

    Attributes that a class or an object may set: ``hook_name``, what the hook is called in
    messages and in checkpoints, by which its state is found again (the name of the class, ``_1``
    added to that of a second one in order, if it is None); ``last``, whether it is called after
    all others; ``hook_secs``, a dict for the seconds that each hook takes; ``hook_parts``, objects
    that are kept in checkpoints in its place.
    """

    #: Whether this hook is called after all others in every phase, as one that saves checkpoints
    #: must be, so that a checkpoint holds what the other hooks made of the step.
    last: ClassVar[bool] = False

    #: What this hook is called in messages and in checkpoints; None: the name of its class.
    hook_name: str | None = None

    #: Ours, for a hook that measures hooks: the session adds to this dict the seconds that the
    #: calls of each hook take, by its name. None: nothing is measured.
    hook_secs: dict[str, float] | None = None

    #: Ours, for a hook that keeps other objects in checkpoints: each has ``state_dict`` and
    #: ``load_state_dict``, and is known by its name here. None: the hook itself, by its own name.
    hook_parts: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """Called once, before the session exists.

        The graph to be launched is the default graph and may be added to here, for the last time.
        A second call on the same graph must add nothing.
        """

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        """Called when a session has been created: at the start and after every recovery."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; return what to fetch and feed in that same run, or None.

        What needs a step of ``rh.torch`` that the caller's fetches do not make is left out of the
        run: ``after_run`` is then not called, and the hook stays due. So is what ``watched`` gives.
        """
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that succeeded; ``run_values.results`` is what was asked for."""

    def end(self, session: RawSession) -> None:
        """Called once when the loop ended well, with a session that can still run."""

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        """Called where ``end`` is not: the loop ended by ``exception``.

        ``session`` is None if it could not be created or is lost.
        """

    def next_due(self) -> Due | None:
        """When this hook next has something to do; None, the default, means at every run.

        Asked after each of its calls. Until then neither ``before_run`` nor ``after_run`` is
        called. If a run goes further than expected, ``after_run`` alone is called, with
        ``results`` None. A subclass that overrides ``before_run`` or ``after_run`` and not this
        method is called at every run.
        """
        return None

    def watched(self) -> Tensor | None:
        """The tensor that ``before_run`` asks for in every run, if it is always the same one.

        In runs in which no other hook is due, ``watch`` is then called in place of ``before_run``
        and ``after_run``, at a fraction of their cost. Asked after ``after_create_session``.
        """
        return None

    def watch(self, step: int, value: Any) -> bool | None:
        """Called with the value of ``watched()`` and the global step that the run has led to.

        Return True to ask the loop to stop.
        """
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """What a checkpoint keeps of this hook, by name. Empty: nothing.

        Values: what JSON has, tuples, bytes, dicts with other keys than str, numbers and arrays of
        NumPy, arrays of torch and JAX. They come back as what they were, on the CPU or the default
        device.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned; called before ``after_create_session``."""

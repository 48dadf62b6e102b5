"""What travels between a session and its hooks in one run: what is asked, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from runhooks.contract.session import RawSession


class SessionRunArgs(NamedTuple):
    """What a hook, or the caller, adds to a run; the arguments of ``session.run``.

    ``fetches``: a tensor, operation, variable or name, or any nesting of lists, tuples, named
    tuples and dicts of these. ``feed_dict``: values by tensor, or None. ``options``: the engine's
    run options, or None. As in ``tf.compat.v1.train.SessionRunArgs``.
    """

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """What a run gave to one hook.

    ``results``: in the shape of what the hook asked for, None if it asked for nothing.
    ``options`` and ``run_metadata``: the engine's, None where it has none.
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """One call of ``run``, as its hooks see it; ``before_run`` and ``after_run`` get the same."""

    __slots__ = ("_next_step", "_original_args", "_session", "_stop_requested")

    def __init__(
        self, original_args: SessionRunArgs, session: RawSession, next_step: int | None = None
    ) -> None:
        self._original_args = original_args
        self._session = session
        self._next_step = next_step
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """What the caller of ``run`` asked for."""
        return self._original_args

    @property
    def session(self) -> RawSession:
        """The raw session: a run on it calls no hook."""
        return self._session

    @property
    def next_step(self) -> int | None:
        """The global step that this run is expected to lead to; None if nobody can tell.

        Ours. It is one step more, or, where runs make several, as many as the run before made.
        """
        return self._next_step

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked to stop in this run."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Ask the loop to stop: ``should_stop()`` of the session is true after this run."""
        self._stop_requested = True

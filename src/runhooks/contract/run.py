"""The messages between a session and its hooks in one run: requests, results, context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from runhooks import arguments
from runhooks.contract.session import RawSession


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
        stop_requested: Whether a hook has asked to stop in this run.
        stop_reason: The reason of the hook that asked to stop, if it gave one.
    """

    __slots__ = ("_next_step", "_original_args", "_session", "stop_reason", "stop_requested")

    def __init__(
        self, original_args: SessionRunArgs, session: RawSession, next_step: int | None = None
    ) -> None:
        self._original_args = original_args
        self._session = session
        self._next_step = next_step
        self.stop_requested = False
        self.stop_reason: str | None = None

    @property
    def original_args(self) -> SessionRunArgs:
        """The request of the caller of ``run``."""
        return self._original_args

    @property
    def session(self) -> RawSession:
        """The raw session: a run on it calls no hook."""
        return self._session

    @property
    def next_step(self) -> int | None:
        """The expected global step after this run; None if unknown.

        An estimate: one more than the current step, or as many more as the previous run made; the
        current step if this run does not increase it.
        TensorFlow's context does not have it.
        """
        return self._next_step

    def request_stop(self, reason: str | None = None) -> None:
        """Ask the loop to stop: ``should_stop()`` of the session is true after this run.

        Args:
            reason: Why, in a few words; shown after the hook's name in ``session.stop_reason`` and
                in the log. TensorFlow's context does not have it.
        """
        arguments.instance(str, reason=reason)
        self.stop_requested = True
        self.stop_reason = self.stop_reason or reason

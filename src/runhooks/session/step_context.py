"""``StepContext``: what ``run_step_fn`` hands to a step function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from runhooks.session.session import Session


class StepContext:
    """The session of one step, with hooks and without."""

    def __init__(self, session: Session, run_with_hooks: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks = run_with_hooks

    @property
    def session(self) -> Session:
        """The raw session: a run on it calls no hook."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """``run`` of the monitored session."""
        return self._run_with_hooks(*args, **kwargs)

    def request_stop(self) -> None:
        """End the loop well, from here: raises StopIteration."""
        raise StopIteration("the step function has asked to stop")


def check_step_fn(step_fn: Any) -> None:
    """Raise TypeError or ValueError unless ``step_fn`` can be called with a step context."""
    if not callable(step_fn):
        raise TypeError(f"step_fn must be a function of a step context, got {step_fn!r}")
    try:
        inspect.signature(step_fn).bind(None)
    except TypeError:
        raise ValueError(
            f"step_fn must take one argument, the step context, got {step_fn!r} with the "
            f"arguments {inspect.signature(step_fn)}"
        ) from None

"""``StepContext``: the argument of a step function, which ``run_step_fn`` calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from runhooks.contract import RawSession

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class StepContext:
    """Runs the session of one step, with hooks or without."""

    def __init__(self, session: RawSession, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks = run_with_hooks_fn

    @property
    def session(self) -> RawSession:
        """The raw session, whose runs call no hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``run`` of the monitored session."""
        return self._run_with_hooks(*args, **kwargs)

    def request_stop(self) -> None:
        """End the loop well: raise StopIteration."""
        raise StopIteration("the step function has asked to stop")


def check_step_fn(step_fn: Any) -> None:
    """Raise TypeError or ValueError unless ``step_fn`` is a function of ``step_context``."""
    if not callable(step_fn):
        raise TypeError(f"step_fn must be a function of one `step_context`, got {step_fn!r}")
    parameters = inspect.signature(step_fn).parameters.values()
    names = [it.name for it in parameters if it.kind in _BY_POSITION]
    if names not in (["step_context"], ["self", "step_context"]):
        raise ValueError(
            "`step_fn` may either have one `step_context` argument or, as a method, `self` before "
            f"it, got {step_fn!r} with the arguments {names}"
        )

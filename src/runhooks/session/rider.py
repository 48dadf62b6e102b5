"""``Rider``: one hook in one session: what it takes part in, and until when it sleeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runhooks.contract import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)


@contextmanager
def naming(hook: str, phase: str) -> Iterator[None]:
    """Note on any error out of the ``with`` block which hook it came from, and in which phase."""
    try:
        yield
    except Exception as error:
        error.add_note(_origin(hook, phase))
        raise


def _origin(hook: str, phase: str) -> str:
    return f"in {phase} of the hook {hook}"


class Rider:
    """A hook as a session calls it. ``step``, ``time`` and ``run`` say when it is next due."""

    __slots__ = ("_after", "_before", "hook", "name", "run", "sleeps", "step", "time")

    def __init__(self, hook: SessionRunHook, name: str) -> None:
        self.hook = hook
        self.name = name
        self._before = _overrides(hook, "before_run")
        self._after = _overrides(hook, "after_run")
        self.sleeps = _says_when_due(hook)
        self.step = self.time = self.run = -math.inf

    @property
    def rides(self) -> bool:
        """Whether the hook does anything in a run."""
        return self._before or self._after

    def ask(self, runs: int) -> None:
        """Ask the hook when it is next due, ``runs`` runs having been made."""
        with naming(self.name, "next_due"):
            due = self.hook.next_due()
        if due is None:
            self.step = self.time = self.run = -math.inf
        else:
            self.step, self.time, self.run = due.step, due.time, runs + due.runs

    def before(self, context: SessionRunContext) -> SessionRunArgs | None:
        """What the hook asks of this run."""
        if not self._before:
            return None
        try:
            request: Any = self.hook.before_run(context)
            if request is not None and not hasattr(request, "fetches"):
                raise TypeError(f"before_run must return SessionRunArgs or None, got {request!r}")
        except Exception as error:
            error.add_note(_origin(self.name, "before_run"))
            raise
        return request  # type: ignore[no-any-return]

    def after(self, context: SessionRunContext, values: SessionRunValues) -> None:
        """Hand the hook what came of this run."""
        if not self._after:
            return
        try:
            self.hook.after_run(context, values)
        except Exception as error:
            error.add_note(_origin(self.name, "after_run"))
            raise


def _overrides(hook: SessionRunHook, method: str) -> bool:
    function = getattr(getattr(hook, method), "__func__", None)
    return function is not getattr(SessionRunHook, method)


def _says_when_due(hook: SessionRunHook) -> bool:
    # A subclass that adds to before_run or after_run wants every run, whatever its base class says.
    if not callable(getattr(hook, "next_due", None)):
        return False

    def depth(method: str) -> int:
        if method in getattr(hook, "__dict__", ()):
            return -1
        return next((i for i, c in enumerate(type(hook).__mro__) if method in vars(c)), -1)

    return 0 <= depth("next_due") <= min(depth("before_run"), depth("after_run"))

"""``Rider``: one hook in one session: what it takes part in, and until when it sleeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runhooks import clock
from runhooks.contract import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.trigger import Due


@contextmanager
def naming(hook: str, phase: str) -> Iterator[None]:
    """Note on any error out of the ``with`` block which hook it came from, and in which phase."""
    try:
        yield
    except Exception as error:
        error.add_note(origin(hook, phase))
        raise


def origin(hook: str, phase: str) -> str:
    """The note on an error that came out of a hook."""
    return f"in {phase} of the hook {hook}"


class Rider:
    """A hook as a session calls it. ``step``, ``time`` and ``run`` say when it is next due.

    ``watched``: what the hook watches in runs in which no other is due; None: nothing.
    """

    __slots__ = ("_after", "_before", "hook", "name", "run", "sleeps", "step", "time", "watched")

    def __init__(self, hook: SessionRunHook, name: str) -> None:
        self.hook = hook
        self.name = name
        self._before = hook.before_run if _overrides(hook, "before_run") else None
        self._after = hook.after_run if _overrides(hook, "after_run") else None
        self.sleeps = _has_last_word(hook, "next_due")
        self.watched = None
        if _has_last_word(hook, "watched"):
            with naming(name, "watched"):
                self.watched = hook.watched()
                if self.watched is not None and self._before is None:
                    raise TypeError("before_run must ask for the tensor that watched() returns")
        self.step = self.time = self.run = -math.inf

    @property
    def rides(self) -> bool:
        """Whether the hook does anything in a run."""
        return self._before is not None or self._after is not None

    def measure(self, secs: dict[str, float]) -> None:
        """Add to ``secs`` under the hook's name, from now on, what its calls take."""
        self._before = _timed(self._before, secs, self.name)
        self._after = _timed(self._after, secs, self.name)
        self.watched = None

    def ask(self, runs: int) -> None:
        """Ask the hook when it is next due, ``runs`` runs having been made."""
        with naming(self.name, "next_due"):
            due = self.hook.next_due()
            if due is not None and not isinstance(due, Due):
                raise TypeError(f"next_due must return a Due or None, got {due!r}")
        if due is None:
            self.step = self.time = self.run = -math.inf
        else:
            self.step, self.time, self.run = due.step, due.time, runs + due.runs

    def before(self, context: SessionRunContext) -> SessionRunArgs | None:
        """What the hook asks of this run."""
        if self._before is None:
            return None
        try:
            request = self._before(context)
            if request is not None:
                _check(request)
        except Exception as error:
            error.add_note(origin(self.name, "before_run"))
            raise
        return request

    def after(self, context: SessionRunContext, values: SessionRunValues) -> None:
        """Hand the hook what came of this run."""
        if self._after is None:
            return
        try:
            self._after(context, values)
        except Exception as error:
            error.add_note(origin(self.name, "after_run"))
            raise


def _check(request: Any) -> None:
    if not hasattr(request, "fetches"):
        raise TypeError(f"before_run must return SessionRunArgs or None, got {request!r}")
    fed = request.feed_dict
    if fed is not None and not isinstance(fed, Mapping):
        raise TypeError(f"feed_dict must map tensors to values, got {fed!r}")


def _timed(
    call: Callable[..., Any] | None, secs: dict[str, float], name: str
) -> Callable[..., Any] | None:
    if call is None:
        return None

    def timed(*args: Any) -> Any:
        start = clock.monotonic()
        try:
            return call(*args)
        finally:
            secs[name] = secs.get(name, 0.0) + clock.monotonic() - start

    return timed


def _overrides(hook: SessionRunHook, method: str) -> bool:
    function = getattr(getattr(hook, method), "__func__", None)
    # TensorFlow's own base class does nothing either.
    return getattr(function, "__qualname__", None) != f"{SessionRunHook.__name__}.{method}"


def _has_last_word(hook: SessionRunHook, method: str) -> bool:
    # A subclass that adds to before_run or after_run wants every run, whatever its base class says.
    if not callable(getattr(hook, method, None)):
        return False

    def depth(method: str) -> int:
        if method in getattr(hook, "__dict__", ()):
            return -1
        return next((i for i, c in enumerate(type(hook).__mro__) if method in vars(c)), -1)

    return depth(method) <= min(depth("before_run"), depth("after_run"))

"""``ScheduledHook``: when a hook is due in one session, and on which of several ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

from runhooks import clock
from runhooks.contract import SessionRunHook
from runhooks.errors import add_note
from runhooks.graph.base import BaseGraph, StepPart
from runhooks.graph.nodes import Effect
from runhooks.graph.sources import Epochs
from runhooks.ranks import Group
from runhooks.trigger import Due, no_epochs

_EVERY_RUN = Due(-math.inf, -math.inf, -math.inf, -math.inf)


class RankPlacement:
    """Says where hooks run, and the time by which those of all ranks act.

    It is that of the chief since the start, and moves only when the ranks agree on it.
    """

    def __init__(self, group: Group, graph: BaseGraph) -> None:
        self._group = group
        self._graph = graph
        self.now = self._start = clock.monotonic()

    def strike(self) -> str:
        # What is due for the chief must be due for all, however clocks are rounded.
        return repr(clock.monotonic() - self._start + 0.001)

    def take(self, text: str) -> None:
        self.now = max(self.now, self._start + float(text))

    def inside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call``, for which the time stands still."""

        def called(*args: Any) -> Any:
            with clock.standing_at(self.now):
                return call(*args)

        return called

    def is_here(self, hook: SessionRunHook) -> bool:
        return self._group.is_chief or self.is_shared(hook)

    def is_shared(self, hook: SessionRunHook) -> bool:
        """Return whether all ranks call ``hook``, in the same runs.

        Where a run is one program of all ranks they must all ask for the same; where each holds a
        part of a value, so must hooks that may ask for it.
        """
        if self._group.runs_one_program or getattr(hook, "runs_on", "all") == "all":
            return True
        return getattr(hook, "asks_on_all", False) and self._holds_parts

    @cached_property
    def _holds_parts(self) -> bool:
        objects = self._graph.objects
        if objects is not None and any(map(objects.is_spread, objects.names)):
            return True
        return any(op.effect is Effect.GATHER for op in self._graph.get_operations())

    def time_of(self, hook: SessionRunHook) -> AbstractContextManager[None]:
        return clock.standing_at(self.now) if self.is_shared(hook) else nullcontext()


def class_says(hook: SessionRunHook, name: str) -> bool:
    """Return ``first`` or ``last`` of ``hook``; one that an instance sets itself is not ours."""
    holder = type(hook) if name in getattr(hook, "__dict__", ()) else hook
    said: bool = getattr(holder, name, False)
    return said


def note_hook(error: BaseException, hook: str, phase: str) -> None:
    add_note(error, f"in {phase} of the hook {hook}")


@contextmanager
def noting_hook(hook: str, phase: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        note_hook(error, hook, phase)
        raise


class ScheduledHook:
    """A hook as a session calls it.

    Attributes:
        before_run: Its method, like ``after_run``; None if not overridden.
        waits: Whether it waits for the end of an iteration, as one that saves.
        sleeps: Whether it says when it is next due.
        watched: The tensor it watches in off-steps, or None.
        placement: For a hook of all ranks; None for any other.
        is_lone: Whether other ranks do not call it.
        is_taken: Whether it takes part in a run being made, where runs overlap.
    """

    def __init__(
        self, hook: SessionRunHook, name: str, placement: RankPlacement | None = None
    ) -> None:
        self.hook = hook
        self.name = name
        self.is_lone = placement is not None and not placement.is_shared(hook)
        self.placement = None if self.is_lone else placement
        self.before_run = hook.before_run if _overrides(hook, "before_run") else None
        self.after_run = hook.after_run if _overrides(hook, "after_run") else None
        self.sleeps = _is_as_specific_as_run_methods(hook, "next_due")
        self.watched = None
        is_watching = callable(getattr(hook, "watch", None)) and _overrides(hook, "watch")
        if is_watching and _is_as_specific_as_run_methods(hook, "watched"):
            with noting_hook(name, "watched"):
                self.watched = hook.watched()
                if self.watched is not None and self.before_run is None:
                    raise TypeError("before_run must ask for the tensor that watched() returns")
        self._next_due = hook.next_due if self.sleeps else None
        if self.placement is not None:
            self.before_run, self.after_run, self._next_due = (
                call and self.placement.inside(call)
                for call in (self.before_run, self.after_run, self._next_due)
            )
        self.waits = class_says(hook, "first") or class_says(hook, "last")
        self.always, self.is_taken = True, False
        self.step, self.time, self.run, self.epoch = _EVERY_RUN

    def measure(self, secs: dict[str, float]) -> None:
        """Add the time of its calls to ``secs``, by its name."""

        def timed(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any) -> Any:
                start = clock.monotonic()
                try:
                    return call(*args)
                finally:
                    secs[self.name] = secs.get(self.name, 0.0) + clock.monotonic() - start

            return called

        self.before_run = self.before_run and timed(self.before_run)
        self.after_run = self.after_run and timed(self.after_run)
        self.watched = None

    def ask_next_due(self, runs: int, epochs: Epochs | None) -> None:
        assert self._next_due is not None, "only a hook that sleeps is asked"
        try:
            due = self._next_due()
            if due is not None and not isinstance(due, Due):
                raise TypeError(f"next_due must return a Due or None, got {due!r}")
            if due is not None and due.epoch != math.inf:
                if epochs is None:
                    raise no_epochs(str(due))
                epochs.check(due.epoch)
        except Exception as error:
            note_hook(error, self.name, "next_due")
            raise
        self.always = due is None
        self.step, self.time, in_runs, self.epoch = due or _EVERY_RUN
        self.run = runs + in_runs
        if due is not None and epochs is not None:
            self.step = min(self.step, epochs.step_at(due.epoch))

    def is_due(
        self, step: int, run: int, now: float, part: StepPart, epochs: float | Fraction
    ) -> bool:
        """Return whether it takes part in ``run``, after which ``epochs`` are done."""
        if self.watched is not None or run >= self.run:
            return True
        return part is not StepPart.PART and (
            step >= self.step
            or epochs >= self.epoch
            or (now if self.placement is None else self.placement.now) >= self.time
        )

    def is_due_by_epochs(self, epochs: float | Fraction) -> bool:
        return not self.always and epochs >= self.epoch

    def check(self, request: Any) -> None:
        if request is None:
            return
        if not hasattr(request, "fetches"):  # TensorFlow's class has the same fields
            raise TypeError(f"before_run must return SessionRunArgs or None, got {request!r}")
        fed = request.feed_dict
        if fed is not None and not isinstance(fed, Mapping):
            raise TypeError(f"feed_dict must map tensors to values, got {fed!r}")


def _overrides(hook: SessionRunHook, method: str) -> bool:
    function = getattr(getattr(hook, method), "__func__", None)
    if function is getattr(SessionRunHook, method):
        return False
    # The base class of TensorFlow's own hooks does nothing either.
    module: str = getattr(function, "__module__", None) or ""
    name: str = getattr(function, "__qualname__", "")
    return not (module.endswith("training.session_run_hook") and name == f"SessionRunHook.{method}")


def _is_as_specific_as_run_methods(hook: SessionRunHook, method: str) -> bool:
    """A subclass that adds to before_run or after_run wants every run, whatever its base says."""
    if not callable(getattr(hook, method, None)):
        return False

    def depth(method: str) -> int:
        if method in getattr(hook, "__dict__", ()):
            return -1
        return next((i for i, c in enumerate(type(hook).__mro__) if method in vars(c)), -1)

    return depth(method) <= min(depth("before_run"), depth("after_run"))


class NextDue:
    """The earliest moments at which hooks are due, but for those called in every run.

    ``time`` is None if no hook goes by it; ``shared_time`` is that of hooks of all ranks.
    """

    def __init__(self) -> None:
        self.always = False
        self.step = self.run = math.inf
        self.epoch: float | Fraction = math.inf
        self.time: float | None = None
        self.shared_time = math.inf

    def is_reached(self, step: int, run: int, part: StepPart, draws: int, left: float) -> bool:
        """``run`` is to lead to ``step``; of ``left`` elements of the epoch, it takes ``draws``."""
        if self.always or run >= self.run:
            return True
        return part is not StepPart.PART and (
            step >= self.step
            or left <= draws
            or (self.time is not None and clock.monotonic() >= self.time)
        )

    def find(self, hooks: Iterable[ScheduledHook]) -> bool:
        """Set it anew; return whether a hook is due already by the time of all ranks."""
        step, run, time, shared_time = (math.inf,) * 4
        epoch: float | Fraction = math.inf
        self.always = is_due = False
        for hook in hooks:
            if hook.always:
                self.always = True
                continue
            step, run, epoch = min(step, hook.step), min(run, hook.run), min(epoch, hook.epoch)
            if (shared := hook.placement) is None:
                time = min(time, hook.time)
            elif shared.now < hook.time:
                shared_time = min(shared_time, hook.time)
            else:
                is_due = True
        self.step, self.run, self.shared_time, self.epoch = step, run, shared_time, epoch
        self.time = time if time < math.inf else None
        return is_due

    def runs_until(self, step: int, stride: int, runs: int, left: float) -> float:
        """Return how many runs of ``stride`` steps are left before a hook is due."""
        by_steps = self.step - stride - step
        if by_steps < math.inf:
            by_steps = -(-by_steps // stride)
        return min(by_steps, self.run - 1 - runs, left - 1)

"""``WatchedRun``: an off-step in which hooks watch values, made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runhooks.contract import PreparedRun, RawSession
from runhooks.errors import add_note
from runhooks.session.scheduled_hook import ScheduledHook, hook_note


class WatchedRun(PreparedRun):
    """A run of what its caller asks for, together with what hooks watch.

    Args:
        fetches: What the caller asks for.
        run: The run of both, whose result is a list: that of the caller first.
        raw: The session that makes it.
        watching: The hooks, in the order of the rest of the list.
        stop: Called with the name of a hook that asks to stop.
        turn: Called before the run, and after the hooks: other threads wait in between.
    """

    __slots__ = ("_begin", "_end", "_raw", "_run", "_stop", "_watching")

    def __init__(
        self,
        fetches: Any,
        run: PreparedRun,
        raw: RawSession,
        watching: Sequence[ScheduledHook],
        stop: Callable[[str], None],
        turn: tuple[Callable[[], object], Callable[[], object]],
    ) -> None:
        self._run = run
        self._begin, self._end = turn
        self._raw = raw
        self._watching = watching
        self._stop = stop
        super().__init__(fetches, run.fed or (), run.steps, run.off_steps)

    @property
    def off_steps(self) -> float:
        """As that of the run itself."""
        return self._run.off_steps

    @off_steps.setter
    def off_steps(self, off_steps: float) -> None:
        self._run.off_steps = off_steps

    def is_fed(self, feed_dict: Any) -> bool:
        return self._run.is_fed(feed_dict)

    def again(self, feed_dict: Any) -> Any:
        self._begin()
        try:
            result = self._run.again(feed_dict)
            watch(self._watching, self._raw.global_step, result, self._stop)
        finally:
            self._end()
        return result[0]


def watch(
    watching: Sequence[ScheduledHook],
    step: int | None,
    result: Sequence[Any],
    stop: Callable[[str], None],
) -> None:
    """Hand hooks the values that they watch.

    Args:
        watching: The hooks.
        step: The global step that the run has led to.
        result: The result of the run, with these values behind that of the caller.
        stop: Called with the name of a hook that asks to stop.
    """
    step = step or 0
    place = 0
    try:
        for hook in watching:
            place += 1
            if hook.hook.watch(step, result[place]):
                stop(hook.name)
    except Exception as error:
        add_note(error, hook_note(hook.name, "watch"))
        raise

"""``NestedLoop``: a loop of runs inside a training loop, with hooks of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from runhooks.contract import RawSession, SessionRunArgs, SessionRunHook
from runhooks.errors import good_ends
from runhooks.session.hook_list import HookList, caught, raise_first
from runhooks.session.hooked import LiveSession

FeedDict = Mapping[Any, Any] | None


class LoopStoppedError(Exception):
    """The training was asked to stop in the middle of a nested loop."""


def until_stop(
    training: RawSession, feeds: Iterable[FeedDict], *, is_at_end: bool
) -> Iterator[FeedDict]:
    """Yield ``feeds`` until the session of the training is asked to stop.

    Args:
        training: The session.
        feeds: Those of a nested loop.
        is_at_end: Whether the loop is what the user wants to be done once the training has ended.

    Raises:
        LoopStoppedError: At a request to stop that was made after the first of ``feeds``, or, not
            at the end, by a signal before it: the training is to be saved before it is killed.
    """
    stop = training.stop_request
    already = stop.reason if is_at_end or not stop.is_by_signal else None
    for feed_dict in feeds:
        if stop.reason != already:
            raise LoopStoppedError(stop.reason)
        yield feed_dict


class NestedLoop:
    """Loops over a raw session with hooks of its own; those of the training are not called.

    To its hooks each loop is a session of its own, of which they see ``after_create_session``, the
    runs, and ``end`` or ``on_exception``. Their states are in no checkpoint.
    """

    def __init__(self, hooks: Iterable[SessionRunHook] | None) -> None:
        self._hooks = HookList(hooks, is_nested=True)

    def begin(self) -> None:
        """Call ``begin`` of the hooks, in the default graph; once, for all loops to come."""
        self._hooks.begin()

    def run(
        self,
        raw: RawSession,
        fetches: Iterable[Any],
        feeds: Iterable[FeedDict],
        take: Callable[[Any], object],
    ) -> int:
        """Make one run of ``fetches`` for each of ``feeds`` and hand its results to ``take``.

        The loop ends well with ``feeds``, at the end of an input, or when a hook asks to stop.

        Returns:
            The number of runs.

        Raises:
            Exception: Whatever a run, a hook or a thread of the hooks raises.
        """
        session = LiveSession.of(raw)
        coord = session.coord
        try:
            runs = self._loop(session, fetches, feeds, take)
        except BaseException as error:
            coord.request_stop()
            self._hooks.on_exception(raw, error)
            raise
        errors = self._hooks.end(raw)
        coord.request_stop()
        raise_first([*errors, *caught(partial(coord.join, ignore_live_threads=True))])
        return runs

    def _loop(
        self,
        session: LiveSession,
        fetches: Iterable[Any],
        feeds: Iterable[FeedDict],
        take: Callable[[Any], object],
    ) -> int:
        runs, hooked, coord = 0, session.hooked, session.coord
        self._hooks.start(session)
        try:
            runs_to_make = map(SessionRunArgs, fetches, feeds)
            while hooked.stop_reason is None and not coord.should_stop():
                take(hooked.run_with_hooks(next(runs_to_make)))
                runs += 1
        except good_ends():
            pass
        coord.raise_requested_exception()
        return runs

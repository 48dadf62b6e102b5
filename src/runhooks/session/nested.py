"""``NestedLoop``: a loop of runs inside a training loop, with hooks of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from runhooks.contract import RawSession, SessionRunHook
from runhooks.errors import good_ends
from runhooks.session.coordinator import Coordinator
from runhooks.session.hook_names import in_order, named
from runhooks.session.hooked import HookedSession
from runhooks.session.rider import naming
from runhooks.session.roster import errors_of

FeedDict = Mapping[Any, Any] | None


class LoopStoppedError(Exception):
    """The training was asked to stop in the middle of a nested loop."""


def until_stop(training: RawSession, feeds: Iterable[FeedDict]) -> Iterator[FeedDict]:
    """``feeds``, until the session of the training is asked to stop meanwhile.

    Raises LoopStoppedError then.
    """
    stop = getattr(training, "stop_request", None)
    already = None if stop is None else stop.reason
    for feed_dict in feeds:
        if stop is not None and stop.reason != already:
            raise LoopStoppedError(stop.reason)
        yield feed_dict


class NestedLoop:
    """Loops over a raw session; ``hooks`` ride along in these runs, and the session's own do not.

    To the hooks each loop is a session of its own, of which they see ``after_create_session``,
    the runs, and ``end`` or ``on_exception``. What they keep is in no checkpoint.
    """

    def __init__(self, hooks: Iterable[SessionRunHook] | None) -> None:
        self._hooks = named(in_order(hooks))

    def begin(self) -> None:
        """``begin`` of the hooks, in the default graph; once, for all loops to come."""
        for name, hook in self._hooks.items():
            with naming(name, "begin"):
                hook.begin()

    def run(
        self,
        raw: RawSession,
        fetches: Any,
        feeds: Iterable[Mapping[Any, Any] | None],
        take: Callable[[Any], object],
    ) -> int:
        """One run for each of ``feeds``, its results handed to ``take``; returns how many.

        It ends well with ``feeds``, at the end of an input, or when a hook asks to stop. Raises
        what a run, a hook or a thread of theirs raises.
        """
        coord = Coordinator(clean_stop_exception_types=())
        try:
            runs = self._loop(raw, coord, fetches, feeds, take)
            for name, hook in self._hooks.items():
                with naming(name, "end"):
                    hook.end(raw)
            coord.request_stop()
            coord.join(ignore_live_threads=True)
        except BaseException as error:
            coord.request_stop()
            self._tell_failure(raw, error)
            raise
        return runs

    def _loop(
        self,
        raw: RawSession,
        coord: Coordinator,
        fetches: Any,
        feeds: Iterable[Mapping[Any, Any] | None],
        take: Callable[[Any], object],
    ) -> int:
        session, runs = HookedSession(raw), 0
        for name, hook in self._hooks.items():
            with naming(name, "after_create_session"):
                hook.after_create_session(raw, coord)
            session.add(name, hook, always=True)
        try:
            feeding = iter(feeds)
            while session.stop_reason is None and not coord.should_stop():
                take(session.run(fetches, next(feeding)))
                runs += 1
        except good_ends():
            pass
        coord.raise_requested_exception()
        return runs

    def _tell_failure(self, raw: RawSession, error: BaseException) -> None:
        for name, hook in self._hooks.items():
            on_exception = getattr(hook, "on_exception", None)
            for failure in errors_of(partial(on_exception, raw, error)) if on_exception else ():
                error.add_note(f"on_exception of the hook {name} then raised {failure!r}")

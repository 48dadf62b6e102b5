"""``RecoverableSession``: replaces a lost session and repeats the run that lost it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runhooks import clock
from runhooks.contract import SessionRunHook
from runhooks.errors import described
from runhooks.session.coordinated import CoordinatedSession
from runhooks.session.stop_request import StopRequest

_log = logging.getLogger("runhooks")


@dataclass(frozen=True)
class RecoveryPolicy:
    """How often, how fast and for how long a lost session is replaced. A plain value.

    ``failures``: how many in a row are put up with, without a step more in between than ever
    before; in a graph without a global step, without a run in between. 0: none.
    ``first_wait_secs``: the wait before the second attempt in a row, doubled for each further one
    up to ``longest_wait_secs``; the first attempt is made at once. ``limit_secs``: how long after
    the first failure in a row the last attempt is made.

    Raises TypeError for what is no number, ValueError for one below 0 and an endless wait.
    """

    failures: int = 8
    first_wait_secs: float = 0.25
    longest_wait_secs: float = 30.0
    limit_secs: float = 1800.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kind, noun = (int, "whole number") if name == "failures" else (int | float, "number")
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be a {noun}, got {value!r}")
            if not value >= 0 or (name.endswith("wait_secs") and value == math.inf):
                raise ValueError(f"{name} must be 0 or more and finite, got {value!r}")
        if self.longest_wait_secs < self.first_wait_secs:
            raise ValueError(
                f"longest_wait_secs must not be below first_wait_secs={self.first_wait_secs!r}, "
                f"got {self.longest_wait_secs!r}"
            )

    def wait_secs(self, failure: int) -> float:
        """Seconds to wait after the n-th failure in a row, from 1."""
        if failure == 1:
            return 0.0
        doublings = min(failure - 2, 64)  # more would overflow
        return min(self.longest_wait_secs, self.first_wait_secs * 2.0**doublings)


class RecoverableSession:
    """A coordinated session that is created anew whenever it is lost.

    ``create`` is given how many recoveries there will have been with the session it makes.
    ``is_lost`` says which errors mean that it is. Whoever makes the ``stop`` request ends a wait
    between two attempts: one more is made then, at once.
    """

    def __init__(
        self,
        create: Callable[[int], CoordinatedSession],
        is_lost: Callable[[BaseException], bool],
        policy: RecoveryPolicy,
        stop: StopRequest,
    ) -> None:
        self._create = create
        self._is_lost = is_lost
        self._policy = policy
        self._stop = stop
        self._failures = 0
        self._failing_since = 0.0
        self._is_last_attempt = False
        self._furthest: int | None = None
        self._last_step: int | None = None
        self._lost: tuple[int | None, Exception] | None = None
        self.recoveries = 0
        self._session: CoordinatedSession | None = None
        self.call(lambda session: None)

    @property
    def session(self) -> CoordinatedSession | None:
        """The session in use; None while it is lost."""
        return self._session

    @property
    def global_step(self) -> int | None:
        """That of the session in use, or of the last one."""
        return self._last_step if self._session is None else self._session.raw.global_step

    def should_stop(self) -> bool:
        """Whether a hook or a thread has asked to stop, or a thread has failed."""
        try:
            return bool(self.call(lambda session: session.should_stop()))
        except Exception:
            if self._session is None:  # there is none that could be closed
                raise
            return True

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        hooks: Iterable[SessionRunHook] | None = None,
    ) -> Any:
        """As ``CoordinatedSession.run``, in a new session if the one in use is lost."""
        if self._session is not None:
            try:
                return self._session.run(fetches, feed_dict, options, run_metadata, hooks)
            except Exception as error:
                if not self._let_go(error):
                    raise
        return self.call(
            lambda session: session.run(fetches, feed_dict, options, run_metadata, hooks)
        )

    def close(self) -> None:
        """Close the session in use."""
        if self._session is not None:
            self._last_step = self.global_step
            session, self._session = self._session, None
            session.close()

    def call(self, act: Callable[[CoordinatedSession], Any]) -> Any:
        """``act(session)``, again in a new session whenever it is lost."""
        while True:
            try:
                if self._session is None:
                    recoveries = self.recoveries + (self._lost is not None)
                    self._session = self._create(recoveries)
                    self._note_recovery(self._session.raw.global_step)
                return act(self._session)
            except Exception as error:
                if not self._let_go(error):
                    raise

    def _let_go(self, error: Exception) -> bool:
        """Close a session lost by ``error``, and wait; False if it is not, or once too often."""
        if not self._is_lost(error):
            if self._lost is not None:
                error.add_note(
                    f"while the session was replaced that {described(self._lost[1])} lost"
                )
            return False
        step = self._session.raw.global_step if self._session is not None else None
        if self._has_got_on(step):
            self._furthest, self._failures = step, 0
        if self._failures == 0:
            self._failing_since = clock.monotonic()
        self._failures += 1
        self._lost = self._lost or (step, error)
        if self._is_last_attempt or self._failures > self._policy.failures or self._secs_left() < 0:
            self._note_end(error)
            return False
        try:
            self.close()
        except Exception as closing:  # noqa: BLE001 - what it was lost by matters more
            if closing is not error:
                _log.warning("closing the lost session raised %s", described(closing))
        secs = max(0.0, min(self._policy.wait_secs(self._failures), self._secs_left()))
        if secs > 0:
            _log.info("the lost session is replaced in %g seconds: %s", secs, described(error))
        self._is_last_attempt = self._stop.wait(secs)
        return True

    def _secs_left(self) -> float:
        return self._failing_since + self._policy.limit_secs - clock.monotonic()

    def _has_got_on(self, step: int | None) -> bool:
        if self._session is None:
            return False
        if step is None:
            return self._session.hooked.runs > 0
        return self._furthest is None or step > self._furthest

    def _note_end(self, error: Exception) -> None:
        """Note on ``error`` why it is the last one."""
        assert self._lost is not None
        (_, first), self._lost = self._lost, None
        if self._policy.failures == 0:
            return
        secs = clock.monotonic() - self._failing_since
        why = self._stop.reason if self._is_last_attempt else "see RecoveryPolicy"
        cause = "" if first is error else f"; the session was lost by {described(first)}"
        error.add_note(
            f"lost {self._failures} times in {round(secs, 2):g} seconds without a further step: "
            f"giving up ({why}){cause}"
        )

    def _note_recovery(self, step: int | None) -> None:
        if self._lost is None:
            return
        (lost_at, error), self._lost = self._lost, None
        self.recoveries += 1
        # Only in words: the traceback of the error holds the lost session, and a log may hold on.
        cause = described(error)
        if step is None:
            _log.warning("session lost and replaced: %s", cause)
        elif lost_at is None:
            _log.warning(
                "session lost while it was created, going on from step %d: %s", step, cause
            )
        else:
            again = f", {lost_at - step} steps are made again" if step < lost_at else ""
            _log.warning(
                "session lost at step %d, going on from step %d%s: %s",
                *(lost_at, step, again, cause),
            )

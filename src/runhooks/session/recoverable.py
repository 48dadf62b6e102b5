"""``RecoverableSession``: replaces a lost session and repeats the run that lost it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runhooks.contract import SessionRunHook
from runhooks.session.coordinated import CoordinatedSession

_log = logging.getLogger("runhooks")


@dataclass(frozen=True)
class RecoveryPolicy:
    """How often, and how fast, a lost session is replaced.

    ``failures``: how many in a row are put up with, without a step more in between than ever
    before; in a graph without a global step, without a run in between.
    ``first_wait_secs``: the wait before the second attempt in a row, doubled for each further one
    up to ``longest_wait_secs``; the first attempt is made at once.
    """

    failures: int = 8
    first_wait_secs: float = 0.25
    longest_wait_secs: float = 30.0

    def wait_secs(self, failure: int) -> float:
        """Seconds to wait after the n-th failure in a row, from 1."""
        if failure == 1:
            return 0.0
        doublings = min(failure - 2, 64)  # more would overflow
        return min(self.longest_wait_secs, self.first_wait_secs * 2.0**doublings)


class RecoverableSession:
    """A coordinated session that is created anew, by ``create``, whenever it is lost.

    ``is_lost`` says which errors mean that.
    """

    def __init__(
        self,
        create: Callable[[], CoordinatedSession],
        is_lost: Callable[[BaseException], bool],
        policy: RecoveryPolicy,
    ) -> None:
        self._create = create
        self._is_lost = is_lost
        self._policy = policy
        self._failures = 0
        self._furthest: int | None = None
        self._lost: tuple[int | None, Exception] | None = None
        self.recoveries = 0
        self._session: CoordinatedSession | None = None
        self.call(lambda session: None)

    @property
    def session(self) -> CoordinatedSession | None:
        """The session in use; None while it is lost."""
        return self._session

    def should_stop(self) -> bool:
        """As ``CoordinatedSession.should_stop``."""
        return bool(self.call(lambda session: session.should_stop()))

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
            session, self._session = self._session, None
            session.close()

    def call(self, act: Callable[[CoordinatedSession], Any]) -> Any:
        """``act(session)``, again in a new session whenever it is lost."""
        while True:
            try:
                if self._session is None:
                    self._session = self._create()
                    self._note_recovery(self._session.raw.global_step)
                return act(self._session)
            except Exception as error:
                if not self._let_go(error):
                    raise

    def _let_go(self, error: Exception) -> bool:
        """Close a session lost by ``error``, and wait; False if it is not, or once too often."""
        if not self._is_lost(error):
            return False
        step = self._session.raw.global_step if self._session is not None else None
        if self._has_got_on(step):
            self._furthest, self._failures = step, 0
        self._failures += 1
        if self._failures > self._policy.failures:
            error.add_note(f"lost {self._failures} times without a further step: giving up")
            return False
        self._lost = self._lost or (step, error)
        try:
            self.close()
        except Exception as closing:  # noqa: BLE001 - what it was lost by matters more
            _log.warning("closing the lost session raised %r", closing)
        threading.Event().wait(self._policy.wait_secs(self._failures))
        return True

    def _has_got_on(self, step: int | None) -> bool:
        if self._session is None:
            return False
        if step is None:
            return self._session.hooked.runs > 0
        return self._furthest is None or step > self._furthest

    def _note_recovery(self, step: int | None) -> None:
        if self._lost is None:
            return
        (lost_at, error), self._lost = self._lost, None
        self.recoveries += 1
        _log.warning("session lost at step %s, going on from step %s: %r", lost_at, step, error)

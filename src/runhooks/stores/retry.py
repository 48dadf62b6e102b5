"""``RetryPolicy``: how long a request to a store is repeated; ``ask`` makes one."""

from __future__ import annotations

import errno
import logging
import math
import random
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from runhooks import arguments, clock
from runhooks.stores import interruption
from runhooks.stores.backend import AnyResult, in_thread
from runhooks.stores.errors import as_os_error, is_transient, lacks_credentials
from runhooks.stores.urls import scheme_of

_log = logging.getLogger("runhooks")


@dataclass(frozen=True)
class RetryPolicy:
    """How long to repeat a request that a store could not answer.

    Requests are repeated after 503 and similar answers, lost connections, and if there is no
    answer. Errors that a retry cannot change, such as denied access, are raised immediately.

    All users of a bucket in a process share the limit. After it, or after Ctrl-C, each request has
    one try, until one is answered.

    Args:
        secs: How long after the first failure since the last answer tries may begin. 0: one try.
        first_wait_secs: The wait before the second try. Each further wait doubles, less a random
            part of at most half.
        longest_wait_secs: The longest wait.

    Raises:
        TypeError, ValueError: An argument is not a number, or out of range.
    """

    secs: float = 300
    first_wait_secs: float = 0.1
    longest_wait_secs: float = 20

    def __post_init__(self) -> None:
        arguments.given(**vars(self))
        arguments.not_negative(secs=self.secs)
        arguments.positive(
            first_wait_secs=self.first_wait_secs, longest_wait_secs=self.longest_wait_secs
        )


_INITIAL = RetryPolicy()
_UNTIL_THE_FIRST_ANSWER = RetryPolicy(secs=10)

_default = _INITIAL


def default_policy() -> RetryPolicy:
    """Return the policy of stores that are opened without one."""
    return _default


def set_retry_policy(policy: RetryPolicy) -> None:
    """Set the policy of every store that is opened without one."""
    global _default
    arguments.given(policy=policy)
    arguments.instance(RetryPolicy, policy=policy)
    _default = policy


class _Patience:
    """Since when a store has failed; without locks: a signal handler may ask it, too."""

    def __init__(self) -> None:
        self.has_answered = False
        self._answered_at = clock.monotonic()
        self._failing_since = math.inf

    def answered(self) -> None:
        self._failing_since = math.inf
        self._answered_at = clock.monotonic()
        self.has_answered = True

    def failed(self, since: float) -> None:
        """Note that a request first tried at ``since`` has not been answered."""
        self._failing_since = min(self._failing_since, max(since, self._answered_at))

    def left(self, secs: float, since: float) -> float:
        """Return how long a request first tried at ``since`` is repeated, if ``secs`` in all.

        They count from the first failure after the last answer, whoever made that request. After a
        Ctrl-C nothing is repeated until the store answers.
        """
        if self._answered_at < interruption.interrupted_at():
            return 0.0
        return secs - (clock.monotonic() - min(since, self._failing_since))


_known: dict[str, _Patience] = {}  # by scheme and bucket
# Not the global generator, which a training may use and a checkpoint hold.
_jitter = random.Random()
_WORTH_A_WARNING_SECS = 1
_SILENT_SECS = 10.0
_SLOW_BYTES_A_SEC = 1 << 20
_INTERRUPTED = "the program was interrupted before the store answered"


def ask(request: Callable[[], AnyResult], url: str, policy: RetryPolicy, nbytes: int) -> AnyResult:
    """Return what ``request()``, which moves ``nbytes``, returns in the end.

    Raises the last error as an OSError whose ``filename`` is ``url``, or ImportError.
    """
    bucket = url.partition("://")[2].partition("/")[0]
    patience = _known.setdefault(f"{scheme_of(url)}://{bucket}", _Patience())
    if policy is _INITIAL and not patience.has_answered:
        policy = _UNTIL_THE_FIRST_ANSWER
    since, wait_secs = clock.monotonic(), policy.first_wait_secs
    with interruption.interrupting():
        while True:
            known = patience.has_answered
            outcome = _outcome(request, url, nbytes, math.inf if known else policy.secs)
            error = outcome.exception()
            if error is None:
                patience.answered()
                return outcome.result()
            if isinstance(error, ImportError) or not isinstance(error, Exception):
                raise error
            if not is_transient(error):
                if patience.has_answered or not lacks_credentials(error):
                    patience.answered()
                raise as_os_error(error, url) from error
            if policy.secs:
                patience.failed(since)
            pause = wait_secs * _jitter.uniform(0.5, 1)
            left = patience.left(policy.secs, since) - pause
            if left < 0:
                raise as_os_error(error, url) from error
            level = logging.DEBUG if pause < _WORTH_A_WARNING_SECS else logging.WARNING
            _log.log(level, "%s; trying again for %.0f s", as_os_error(error, url), left)
            interruption.sleep(pause)
            wait_secs = min(2 * wait_secs, policy.longest_wait_secs)


def _outcome(
    request: Callable[[], AnyResult], url: str, nbytes: int, limit_secs: float
) -> Future[AnyResult]:
    """What became of ``request()``: an error if nothing is heard for ``limit_secs`` and a while.

    It has its own thread: the libraries beneath may hold a Ctrl-C back for minutes.
    """
    if not interruption.secs_left():
        return _timeout(url, _INTERRUPTED)
    outcome, since = in_thread(request, "runhooks-request"), clock.monotonic()
    silent_secs, is_mentioned = _SILENT_SECS + nbytes / _SLOW_BYTES_A_SEC, False
    while interruption.secs_left():
        wait([outcome], interruption.look_secs())
        if outcome.done():
            return outcome
        silent = clock.monotonic() - since
        if silent > limit_secs + silent_secs:
            return _timeout(url, f"no answer for {silent:.0f} s")
        if not is_mentioned and silent > silent_secs:
            is_mentioned = True
            _log.warning("%s: no answer for %.0f s; waiting for it", url, silent_secs)
    return _timeout(url, _INTERRUPTED)


def _timeout(url: str, text: str) -> Future[Any]:
    outcome = Future[Any]()
    outcome.set_exception(TimeoutError(errno.ETIMEDOUT, text, url))
    return outcome

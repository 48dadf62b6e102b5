"""``RetryPolicy``: how long a request to a store is repeated; ``ask`` makes one."""

from __future__ import annotations

import errno
import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from runhooks import arguments, clock
from runhooks.stores import interruption
from runhooks.stores.errors import as_os_error, is_transient, lacks_credentials
from runhooks.stores.interruption import interrupted_at
from runhooks.stores.urls import scheme_of


@dataclass(frozen=True)
class RetryPolicy:
    """How long to repeat a request that a store could not answer.

    Requests are repeated after 503 and similar answers, after lost connections, and if there is no
    answer. Errors that a retry cannot change, such as a missing bucket or denied access, are raised
    immediately.

    All users of a bucket in a process share the limit: the seconds count from the first failure
    after the last answer. After that time, or after Ctrl-C, each request has one try, until one is
    answered.

    Args:
        secs: How long after the first try further ones may begin. 0: only one try.
        first_wait_secs: The wait before the second try. Each further wait doubles, less a random
            part of at most half.
        longest_wait_secs: The longest wait.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is out of range.
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


def before_any_answer(policy: RetryPolicy) -> RetryPolicy:
    """Return what ``policy`` means while a store has not answered in this process.

    Somebody may be waiting for the program to begin, and the URL may be wrong: unless a policy was
    set, that is said after 10 seconds.
    """
    return _UNTIL_THE_FIRST_ANSWER if policy is _INITIAL else policy


def set_retry_policy(policy: RetryPolicy) -> None:
    """Set the retry policy of every store that is opened without its own policy."""
    global _default
    arguments.given(policy=policy)
    arguments.instance(RetryPolicy, policy=policy)
    _default = policy


class Patience:
    """Since when a store has failed.

    Attributes are only read and replaced, without a lock: a signal handler may ask the store, too.
    """

    def __init__(self) -> None:
        #: Whether it has ever answered.
        self.has_answered = False
        self._answered_at = clock.monotonic()
        self._failing_since = math.inf

    def answered(self) -> None:
        """Note that the store has answered."""
        self._failing_since = math.inf
        self._answered_at = clock.monotonic()
        self.has_answered = True

    def failed(self, since: float) -> None:
        """Note that a request which was first tried at ``since`` has not been answered."""
        self._failing_since = min(self._failing_since, max(since, self._answered_at))

    def left(self, secs: float, since: float) -> float:
        """Return for how long a request is still repeated, if that may take ``secs`` in all.

        They count from the first failure after the last answer, whoever made that request. After a
        Ctrl-C nothing is repeated until the store answers again.

        Args:
            secs: Seconds.
            since: When the request was tried first.
        """
        if self._answered_at < interrupted_at():
            return 0.0
        return secs - (clock.monotonic() - min(since, self._failing_since))


_known: dict[str, Patience] = {}


def patience_with(url: str) -> Patience:
    """Return what is known of the store that ``url`` is in: its scheme and its bucket."""
    bucket = url.partition("://")[2].partition("/")[0]
    return _known.setdefault(f"{scheme_of(url)}://{bucket}", Patience())


_log = logging.getLogger("runhooks")

AnyResult = TypeVar("AnyResult")

# Not the global generator, which a training may use and a checkpoint hold.
_jitter = random.Random()
_WORTH_A_WARNING_SECS = 1
_SILENT_SECS = 10.0
_SLOW_BYTES_A_SEC = 1 << 20


class _Outcome(NamedTuple, Generic[AnyResult]):
    result: AnyResult
    error: BaseException | None


def ask(
    request: Callable[[], AnyResult],
    url: str,
    policy: RetryPolicy,
    patience: Patience,
    nbytes: int = 0,
) -> AnyResult:
    """Return what ``request()`` returns in the end.

    Args:
        request: Asks the store once; called in a thread of its own.
        url: What it asks for.
        policy: For how long it is repeated.
        patience: What is known of the store.
        nbytes: How many bytes it moves; so many take a while.

    Raises:
        OSError: The last error, as the kind that a disk would raise; ``filename`` is ``url``.
        ImportError: Something is not installed.
    """
    begun, wait = clock.monotonic(), policy.first_wait_secs
    with interruption.interrupting():
        while True:
            known = patience.has_answered
            outcome = _outcome(request, url, nbytes, math.inf if known else policy.secs)
            error = outcome.error
            if error is None:
                patience.answered()
                return outcome.result
            if isinstance(error, ImportError) or not isinstance(error, Exception):
                raise error
            if lacks_credentials(error) and not patience.has_answered:
                raise as_os_error(error, url) from error
            if not is_transient(error):
                patience.answered()
                raise as_os_error(error, url) from error
            if policy.secs:
                patience.failed(begun)
            pause = wait * _jitter.uniform(0.5, 1)
            left = patience.left(policy.secs, begun) - pause
            if left < 0:
                raise as_os_error(error, url) from error
            level = logging.DEBUG if pause < _WORTH_A_WARNING_SECS else logging.WARNING
            _log.log(level, "%s; trying again for %.0f s", as_os_error(error, url), left)
            interruption.sleep(pause)
            wait = min(2 * wait, policy.longest_wait_secs)


def _outcome(
    request: Callable[[], AnyResult], url: str, nbytes: int, limit_secs: float
) -> _Outcome[AnyResult]:
    """What became of ``request()``: an error if nothing is heard for ``limit_secs`` and a while.

    It has a thread of its own because the libraries beneath hold a Ctrl-C back until their time
    limits are over, which may be minutes.
    """
    if not interruption.secs_left():
        return _given_up(url)
    answers: SimpleQueue[_Outcome[Any]] = SimpleQueue()

    def make() -> None:
        try:
            answers.put(_Outcome(request(), None))
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            answers.put(_Outcome(None, error))

    try:
        threading.Thread(target=make, name="runhooks-request", daemon=True).start()
    except RuntimeError:  # the process ends, or may have no more threads
        make()
    begun = clock.monotonic()
    silent_secs, is_mentioned = _SILENT_SECS + nbytes / _SLOW_BYTES_A_SEC, False
    while interruption.secs_left():
        try:
            return answers.get(timeout=interruption.look_secs())
        except Empty:
            silent = clock.monotonic() - begun
            if silent > limit_secs + silent_secs:
                return _timeout(url, f"no answer for {silent:.0f} s")
            if not is_mentioned and silent > silent_secs:
                is_mentioned = True
                _log.warning("%s: no answer for %.0f s; waiting for it", url, silent_secs)
    return _given_up(url)


def _given_up(url: str) -> _Outcome[Any]:
    return _timeout(url, "the program was interrupted before the store answered")


def _timeout(url: str, text: str) -> _Outcome[Any]:
    return _Outcome(None, TimeoutError(errno.ETIMEDOUT, text, url))

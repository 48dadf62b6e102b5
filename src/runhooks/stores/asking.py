"""``ask``: a request to a store, repeated as the policy says, that a Ctrl-C ends at any time."""

from __future__ import annotations

import errno
import logging
import math
import random
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from runhooks import clock
from runhooks.stores import interruption
from runhooks.stores.errors import as_os_error, is_transient, without_secrets
from runhooks.stores.messages import lacks_credentials
from runhooks.stores.patience import Patience
from runhooks.stores.retry import RetryPolicy

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
                raise as_os_error(error, url) from without_secrets(error)
            if not is_transient(error):
                patience.answered()
                raise as_os_error(error, url) from without_secrets(error)
            if policy.secs:
                patience.failed(begun)
            pause = wait * _jitter.uniform(0.5, 1)
            left = patience.left(policy.secs, begun) - pause
            if left < 0:
                raise as_os_error(error, url) from without_secrets(error)
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

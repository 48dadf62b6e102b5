"""``RetryPolicy``: how long what a store could not answer is tried again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from runhooks import arguments, clock
from runhooks.stores.errors import is_passing, surfaced

_log = logging.getLogger("runhooks")

AnyResult = TypeVar("AnyResult")

# Not the global generator, which a training may use and a checkpoint hold.
_jitter = random.Random()
_WORTH_A_WARNING_SECS = 1


@dataclass(frozen=True)
class RetryPolicy:
    """For how long a request is repeated that a store could not answer.

    Repeated are 503 and other answers that ask for patience, lost connections, and requests without
    an answer. What no repetition changes is raised at once: no such bucket, no access.

    Args:
        secs: How long after the first try others begin. 0: there is one try.
        first_wait_secs: The wait before the second try. Each wait is twice the one before it, less
            a random part of at most a half.
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

    def call(self, request: Callable[[], AnyResult], url: str) -> AnyResult:
        """Return what ``request()`` returns in the end.

        Raises:
            OSError: The last error, as the kind that a disk would raise; ``filename`` is ``url``.
        """
        begun, wait = clock.monotonic(), self.first_wait_secs
        while True:
            try:
                return request()
            except ImportError:
                raise
            except Exception as error:
                pause = wait * _jitter.uniform(0.5, 1)
                left = self.secs - (clock.monotonic() - begun) - pause
                if left < 0 or not is_passing(error):
                    raise surfaced(error, url) from error
                level = logging.DEBUG if pause < _WORTH_A_WARNING_SECS else logging.WARNING
                _log.log(level, "%s; trying again for %.0f s", surfaced(error, url), left)
            time.sleep(pause)
            wait = min(2 * wait, self.longest_wait_secs)


_default = RetryPolicy()


def default_policy() -> RetryPolicy:
    """Return the policy of stores that are opened without one."""
    return _default


def set_retry_policy(policy: RetryPolicy) -> None:
    """From now on let every store that is opened without a policy of its own follow ``policy``."""
    global _default
    arguments.given(policy=policy)
    arguments.instance(RetryPolicy, policy=policy)
    _default = policy

"""``RetryPolicy``: how long what a store could not answer is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from runhooks import arguments


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

"""``RetryPolicy``: how long what a store could not answer is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from runhooks import arguments


@dataclass(frozen=True)
class RetryPolicy:
    """How long to repeat a request that a store could not answer.

    Repeated are 503 and other answers that ask for patience, lost connections, and requests without
    an answer. What no repetition changes is raised at once: no such bucket, no access.

    All who use a bucket wait for it together: the seconds count from its first failure after its
    last answer. Once they are over, or after a Ctrl-C, each request has one try, until one is
    answered.

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


_default = RetryPolicy()


def default_policy() -> RetryPolicy:
    """Return the policy of stores that are opened without one."""
    return _default


def set_retry_policy(policy: RetryPolicy) -> None:
    """Set the retry policy of every store that is opened without its own policy."""
    global _default
    arguments.given(policy=policy)
    arguments.instance(RetryPolicy, policy=policy)
    _default = policy

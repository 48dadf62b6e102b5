"""``Patience``: since when a store has failed, for all who ask it for something."""

from __future__ import annotations

import math

from runhooks import clock
from runhooks.stores.interruption import interrupted_at
from runhooks.stores.urls import scheme_of


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

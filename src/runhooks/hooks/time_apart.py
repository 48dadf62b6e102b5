"""Time that a session spends on something else than training, kept out of its speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from runhooks import clock


def time_apart(session: Any) -> float:
    """Seconds that ``session`` has spent on evaluations, synchronous saving and the like."""
    secs: float = getattr(session, "time_apart", 0.0)
    return secs


@contextmanager
def spent_apart(session: Any) -> Iterator[None]:
    """Count the ``with`` block as time that ``session`` spends apart from training.

    Blocks in one another are counted once, and what inputs take in it is not time waited for the
    input of training. A session that takes no such attribute counts nothing.
    """
    before, start = time_apart(session), clock.monotonic()
    input_secs = getattr(session, "input_secs", None)
    try:
        yield
    finally:
        with suppress(AttributeError):
            session.time_apart = before + clock.monotonic() - start
            if input_secs is not None:
                session.input_secs = input_secs

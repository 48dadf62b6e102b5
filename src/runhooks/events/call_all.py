"""``call_all``: several calls of which none may keep the others from being made."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def call_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all ``calls``; then raise what failed first, with notes on what else failed."""
    errors = []
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 (raised when all are made)
            errors.append(error)
    if errors:
        first, *rest = errors
        for other in rest:
            first.add_note(f"and then failed: {other!r}")
        raise first

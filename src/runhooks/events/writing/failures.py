"""Errors of several calls, and of calls whose caller is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runhooks.errors import add_note, cause, described


def call_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all ``calls``, then raise the first error with a note on each of the others."""
    errors = []
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 (raised when all are made)
            errors.append(error)
    if errors:
        first, *rest = errors
        for other in rest:
            add_note(first, f"and then failed: {described(other)}")
        raise first


def add_to_message(error: BaseException, text: str) -> None:
    """Add ``text`` to the message of a system's error, such as of a full disk; to others a note."""
    if isinstance(error, OSError) and error.strerror is not None:
        error.strerror = f"{error.strerror}; {text}"
    else:
        add_note(error, text)


def error_text(error: BaseException) -> str:
    """Return the type, message and notes of ``error`` in one line, for the log."""
    message = f"{type(error).__name__}: {cause(error)}"
    return "; ".join((message, *getattr(error, "__notes__", ()))).replace("\n", " ")

"""``one_line``: an error for the log, where nobody can catch it any more."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """Return what ``error`` says, with its type and its notes, as one line."""
    said = f"{type(error).__name__}: {error}"
    return "; ".join((said, *getattr(error, "__notes__", ()))).replace("\n", " ")

"""Checks of arguments that many classes share; each names the argument, the rule and the value."""

from __future__ import annotations


def exactly_one(**arguments: object) -> None:
    """Raise ValueError unless exactly one of ``arguments`` is given (is not None)."""
    given = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    if len(given) != 1:
        raise ValueError(
            f"exactly one of {' and '.join(arguments)} must be given, "
            f"got {' and '.join(given) or 'neither'}"
        )


def positive(**arguments: float | None) -> None:
    """Raise ValueError for any of ``arguments`` that is given and not above zero."""
    for name, value in arguments.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, got {value!r}")

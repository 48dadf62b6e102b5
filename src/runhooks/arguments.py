"""Checks of arguments: each error names the argument, the rule and the value.

A wrong type is a TypeError, a wrong value a ValueError. None means "not given" and passes every
check but ``given``, ``stateful`` and those of several arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any


def exactly_one(**arguments: object) -> None:
    given = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    if len(given) != 1:
        *names, last = arguments
        raise ValueError(
            f"exactly one of {', '.join(names)} and {last} must be given, "
            f"got {' and '.join(given) or 'none'}"
        )


def at_least_one(**arguments: object) -> None:
    if all(value is None for value in arguments.values()):
        raise ValueError(f"{' or '.join(arguments)} must be given, got neither")


def given(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is None:
            raise TypeError(f"{name} must be given, got None")


def positive(**arguments: Any) -> None:
    for name, value in _numbers(Real, "number", arguments):
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value!r}")


def not_negative(**arguments: Any) -> None:
    for name, value in _numbers(Real, "number", arguments):
        if not value >= 0:
            raise ValueError(f"{name} must not be negative, got {value!r}")


def whole(least: float = 1, /, **arguments: Any) -> None:
    for name, value in _numbers(Integral, "whole number", arguments):
        if value < least:
            rule = "not be negative" if least == 0 else f"be above {least - 1:g}"
            raise ValueError(f"{name} must {rule}, got {value!r}")


def steps(least: float = 1, /, **arguments: Any) -> None:
    """As ``whole``; a float without a fraction, such as 1e6, passes too."""
    for name, value in arguments.items():
        is_whole = isinstance(value, float) and value.is_integer()
        whole(least, **{name: int(value) if is_whole else value})


def finite(**arguments: Any) -> None:
    for name, value in _numbers(Real, "number", arguments):
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value!r}")


def stateful(**arguments: object) -> None:
    for name, value in arguments.items():
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(value, method, None)):
                raise TypeError(
                    f"{name} must have state_dict and load_state_dict, got {value!r} "
                    f"without {method}"
                )


def function(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be a function, got {value!r}")


def instance(kind: type, /, **arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")


def directory(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None and not isinstance(value, str) and not hasattr(value, "__fspath__"):
            raise TypeError(f"{name} must be a str or a Path, got {value!r}")
        if value == "":
            raise ValueError(f"{name} must not be empty, got ''; use '.' for the current directory")


def _numbers(kind: type, noun: str, arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    numbers = [(name, value) for name, value in arguments.items() if value is not None]
    for name, value in numbers:
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"{name} must be a {noun}, got {value!r}")
    return numbers

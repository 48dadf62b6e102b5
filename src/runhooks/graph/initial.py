"""``InitialFrom``: an initial value that is made of that of another variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runhooks.graph.tensor import Variable


class InitialFrom:
    """The initial value of a variable, ``fn`` of the initial value of another.

    A session gives ``fn`` the value that it has begun with, so that a function which makes it, at
    random for example, is called once.

    Args:
        variable: The other variable.
        fn: A function of its value, as an engine keeps it.
    """

    def __init__(self, variable: Variable, fn: Callable[[Any], Any]) -> None:
        self.variable = variable
        self.fn = fn

    def __call__(self) -> Any:
        """Return the initial value where there is no session."""
        initial = self.variable.initial_value
        return self.fn(initial() if callable(initial) else initial)

"""Initial values that are made when a session begins: ``InitialMade`` and ``InitialFrom``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runhooks.graph.tensor import Variable


class InitialMade:
    """The initial value that a function makes: called once for the graph and its first session.

    A second call would draw other random numbers than the user's own program does.

    Args:
        make: The user's function, which returns the value.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: list[Any] = []

    def look(self) -> Any:
        """Return the value that the first session will begin with."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    def __call__(self) -> Any:
        """Return the value for a session, which need not be kept any longer."""
        try:
            return self._made.pop()
        except IndexError:
            return self._make()


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
        """Return a value as if it were the first of a session of its own."""
        initial = self.variable.initial_value
        return self.fn(initial() if callable(initial) else initial)

"""``Parts``: what the steps of a graph change in place, beside the variables of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from numpy.typing import NDArray

#: The types of operations that change parts, that take something out of what such a step returns,
#: that capture something of parts in any run, that do so while a step is made, that read parts.
STEP, OUTPUT, CAPTURE, GRADIENT, READ = "Step", "StepOutput", "Capture", "Gradient", "Read"

#: How the names of their states in a snapshot begin.
PART_STATES = "parts/"

Arrays = Mapping[str, NDArray[Any]]


class Parts(Protocol):
    """Objects of the user's own, such as modules and optimizers, which a snapshot is taken of.

    No session holds them: all sessions of a graph change the same ones, and there is no way back
    but a snapshot.
    """

    @property
    def changed(self) -> bool:
        """Whether a step was begun since they were last loaded or ``settle`` was called."""
        ...

    def settle(self) -> None:
        """Take what they hold now for what a session begins with."""
        ...

    def save(self, into: Arrays | None = None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Their arrays, named ``"<part>/<path>"``, and the rest of their states by part.

        ``into``: as for ``Engine.to_host``, by name. Raises TypeError for what cannot be saved.
        """
        ...

    def owns(self, name: str) -> bool:
        """Whether an array of that name would be one of theirs."""
        ...

    def kept_apart(self) -> AbstractContextManager[None]:
        """Put random generators and modes back as they were before the ``with`` block."""
        ...

    def loader(
        self, arrays: Arrays, states: Mapping[str, Any], only: Collection[str] | None
    ) -> Callable[[], None]:
        """A function that gives them what ``save`` returned; of ``only`` these parts if given.

        Raises ValueError, before anything is changed, if that does not fit them.
        """
        ...


def kept_apart(graph: Any) -> AbstractContextManager[None]:
    """``Parts.kept_apart`` of the parts of ``graph``, if it has any."""
    parts: Parts | None = getattr(graph, "parts", None)
    return nullcontext() if parts is None else parts.kept_apart()

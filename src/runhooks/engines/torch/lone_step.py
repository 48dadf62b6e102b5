"""``LoneStep``: one step from which nothing is fetched, the run of most loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runhooks.errors import add_note
from runhooks.graph.engine import FlatRun
from runhooks.graph.tensor import Variable


class LoneStep(FlatRun):
    """Calls the function of a step, and does nothing else.

    Args:
        fn: The function, which changes objects in place.
        places: Where its arguments are among the values that are given; None: they are these.
        notes: What to note on its errors.
    """

    def __init__(
        self, fn: Callable[..., Any], places: Sequence[int] | None, notes: Sequence[str]
    ) -> None:
        def in_order(*given: Any) -> list[Any]:
            fn(*given)
            return [()]

        def in_other_order(*given: Any) -> list[Any]:
            fn(*[given[i] for i in places or ()])
            return [()]

        super().__init__(in_order if places is None else in_other_order)
        self._notes = notes

    def __call__(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
        """Make the run, as what ``Engine.compile`` returns."""
        try:
            self.step(*given)
        except BaseException as error:
            self._note(error)
            raise
        return ()

    def explain(self, error: Exception, args: Sequence[Any]) -> None:
        self._note(error)

    def _note(self, error: BaseException) -> None:
        for note in self._notes:
            add_note(error, note)

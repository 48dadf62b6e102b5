"""``LoneStep``: one step from which nothing but its outputs is fetched, the run of most loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runhooks.errors import add_note
from runhooks.graph.engine import FlatRun
from runhooks.graph.evaluate import note_operation
from runhooks.graph.tensor import Operation, Variable


class LoneStep(FlatRun):
    """Calls the function of a step, and takes outputs from what it returns.

    Args:
        op: The step, whose function changes objects in place.
        places: Where its arguments are among the values that are given; None: they are these.
        outputs: The operations that take the values that are fetched from what it returns.
        own: Returns a copy of a value, for whoever fetches it.
        note: What to note on errors.
    """

    def __init__(
        self,
        op: Operation,
        places: Sequence[int] | None,
        outputs: Sequence[Operation],
        own: Callable[[Any], Any],
        note: str,
    ) -> None:
        fn: Any = op.fn
        reads: list[tuple[Operation, Any]] = [(it, it.fn) for it in outputs]

        def step(*given: Any) -> list[Any]:
            at = op
            try:
                returned = fn(*given) if places is None else fn(*[given[i] for i in places])
                fetched = []
                for at, read in reads:  # noqa: B007 - it tells where an error came from
                    fetched.append(own(read(returned)))
            except BaseException as error:
                note_operation(error, at)
                add_note(error, note)
                raise
            return [fetched]

        super().__init__(step)

    def __call__(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
        """Make the run, as what ``Engine.compile`` returns."""
        fetched: Sequence[Any] = self.step(*given)[0]
        return fetched

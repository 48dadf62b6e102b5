"""``Snapshot``: the state of a session at one moment, as a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from runhooks.graph.resized import Resized


class Snapshot(NamedTuple):
    """The state of a session at one moment.

    Attributes:
        arrays: By the name of the variable, then ``/`` and the path inside the variable's pytree,
            such as ``"state/params/conv/kernel"``. Arrays of NumPy; of several ranks that save
            together, each may also take ``ShardedArray`` objects, and gets ``ArraySource`` objects.
        states: The states of hooks, inputs and other objects by name, as
            ``SessionRunHook.state_dict`` returns them.
        resized: Of a checkpoint that another number of ranks has saved; else None.
        is_given: Whether nothing else uses the memory of the arrays: whoever loads them may keep
            them without a copy.
        release: A function to call, in any thread, when the arrays are no longer needed. Until then
            they may be the variables' own, which runs leave as they are; read them by
            ``np.asarray``. None: there is nothing to call.
    """

    arrays: dict[str, Any]
    states: dict[str, Any]
    resized: Resized | None = None
    is_given: bool = False
    release: Callable[[], None] | None = None

    def only(self, variables: Collection[str]) -> Snapshot:
        """Return the same with the arrays of the named variables alone.

        Raises:
            ValueError: For a variable that has no array here.
        """
        missing = [
            name for name in variables if not any(_belongs(key, name) for key in self.arrays)
        ]
        if missing:
            raise ValueError(f"no variable of the session is named {', '.join(map(repr, missing))}")
        kept = {
            key: array
            for key, array in self.arrays.items()
            if any(_belongs(key, name) for name in variables)
        }
        return self._replace(arrays=kept)


def _belongs(key: str, variable: str) -> bool:
    return key == variable or key.startswith(f"{variable}/")

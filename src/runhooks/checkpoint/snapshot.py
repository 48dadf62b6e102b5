"""``Snapshot``: what a checkpoint holds, between a session and the files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray


class Snapshot(NamedTuple):
    """The values of a session at one moment.

    ``arrays``: by variable name, then ``/`` and the path inside the variable's pytree, such as
    ``"state/params/conv/kernel"``. ``states``: what hooks and other objects keep, by name:
    values as ``SessionRunHook.state_dict`` returns them.
    """

    arrays: dict[str, NDArray[Any]]
    states: dict[str, Any]

    def only(self, variables: Collection[str]) -> Snapshot:
        """The same with the arrays of the named variables alone.

        Raises ValueError for a variable that has no array here.
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


class SavableSession(Protocol):
    """What a ``Saver`` asks of a session.

    ``checkpoint``: the path of the checkpoint that holds its present state, whole; else None. The
    ``Saver`` sets it.
    """

    checkpoint: str | None

    @property
    def global_step(self) -> int | None:
        """The global step; None if the graph has none."""
        ...

    def run(self, fetches: Any) -> Any:
        """Compute ``fetches``."""
        ...

    def snapshot(self, into: Mapping[str, NDArray[Any]] | None = None) -> Snapshot:
        """All values, waiting for the device.

        ``into``, which asynchronous savers give: later runs must not change what is taken; what is
        copied for that may be copied into these arrays.
        """
        ...

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        """Take ``snapshot`` in, whole or not at all; of ``only`` these variables if given.

        Raises ValueError if it does not fit the variables of the session.
        """
        ...

"""``BatchSession``: a session whose runs are the batches of a loop that a framework owns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from numpy.typing import NDArray

from runhooks.arrays import to_numpy
from runhooks.arrays.shards import Share
from runhooks.bridges.batch_graph import BatchGraph
from runhooks.contract import Snapshot
from runhooks.session.session import Session


class BatchSession(Session):
    """A session that reads what the framework's batches have left, and makes none itself.

    Args:
        graph: The values of the batches.
        step: The global step that the framework begins with.
    """

    def __init__(self, graph: BatchGraph, step: int) -> None:
        super().__init__(graph)
        self._exposed = graph.exposed
        self._move_to(step)

    def count(self, step: int) -> None:
        """Take note of a batch that has led to the global step ``step``."""
        self._move_to(step)
        self.runs += 1
        self.changes += 1

    def run_batch(self, fetches: Any, step: int) -> Any:
        """Return the values of ``fetches`` after a batch, and take note of it as ``count`` does."""
        result = self.run(fetches)
        self._move_to(step)
        self.changes += 1
        return result

    def _move_to(self, step: int) -> None:
        variable = self._values.step_variable
        assert variable is not None, "a BatchGraph has a global step"
        self._variables[variable] = step

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        value = self.run(name)
        if isinstance(value, list):  # the rates of several groups
            value = dict(enumerate(value))
        if not isinstance(value, Mapping):
            return {name: to_numpy(value)}
        return {f"{name}/{path}": to_numpy(it) for path, it in value.items()}

    def assign(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._exposed.assign(name, value)

    def snapshot(
        self, into: Mapping[str, Any] | None = None, share: Share | None = None
    ) -> Snapshot:
        self._refuse()

    def load(self, snapshot: Snapshot, only: Collection[str] | None = None) -> None:
        self._refuse()

    def save_checkpoint(
        self, saver: Any, save_path: Any, step: int, *, save_graph_def: bool
    ) -> str:
        self._refuse()

    def _refuse(self) -> NoReturn:
        title = self._exposed.title
        raise RuntimeError(
            f"a hook cannot save or load the state of a training that {title} runs: let {title} "
            "save its checkpoints, which hold the states of the hooks too"
        )

"""``BatchGraph``: what a framework exposes of its batches, as a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from numpy.typing import NDArray

from runhooks.arrays import to_numpy
from runhooks.arrays.shards import Share
from runhooks.contract import Snapshot
from runhooks.engines.numpy.engine import PythonEngine
from runhooks.graph import nest
from runhooks.graph.base import Framework
from runhooks.graph.build import get_or_create_global_step, group
from runhooks.graph.graph import Graph
from runhooks.graph.named_values import NamedValues, ValueGraph
from runhooks.graph.nodes import Operation
from runhooks.near_names import suggestion
from runhooks.session.session import Session
from runhooks.summary import Summary, scalar_value

BATCH = "batch"
SUMMARIES = "summaries"
RATE = "learning_rate"


class BatchValues:
    """What a framework exposes of its last batch; each bridge extends it."""

    #: How the framework is written in prose.
    title: str

    def loss(self) -> Any:
        """Return the loss of the batch; None if it has none."""
        raise NotImplementedError

    def is_skipped(self) -> bool:
        """Whether the training has left out the batch, which then has no loss."""
        return False

    def metrics(self) -> Mapping[str, Any]:
        """Return the metrics that are known after the batch, by name."""
        return {}

    def validated(self) -> Mapping[str, Any]:
        """Return the metrics that a validation has found, and no batch changes."""
        return {}

    def rates(self) -> Mapping[str, Any]:
        """Return the learning rates of the batch by name."""
        raise NotImplementedError

    def other(self, name: str) -> Callable[[], Any] | None:
        """Return what reads a value that is neither loss nor metric, or None."""
        raise NotImplementedError

    def other_names(self) -> Iterable[str]:
        """Return the names that ``other`` knows now."""
        raise NotImplementedError

    def reader(self, name: str) -> Callable[[], Any] | None:
        if name == "loss":
            return self._loss
        if name == "metrics":
            return lambda: dict(self.metrics())
        return (lambda: self._metric(name)) if name.startswith("metrics/") else self.other(name)

    def names(self) -> list[str]:
        metrics = [f"metrics/{it}" for it in self.metrics()]
        return ["loss", *metrics, "metrics", *self.other_names()]

    def unknown(self, name: str) -> str:
        """Return why there is no value called ``name``, as the end of a sentence."""
        return f"{self.title} exposes {sorted(self.names())}{suggestion(name, self.names())}"

    def scalars(self) -> dict[str, Any]:
        loss, old = self.loss(), self.validated()
        metrics = {f"metrics/{name}": it for name, it in self.metrics().items() if name not in old}
        return {**({} if loss is None else {"loss": loss}), **metrics, **self.rates()}

    def assign(self, name: str, value: Any) -> None:
        """Give what is called ``name`` a new value between batches, or raise ValueError."""
        raise ValueError(f"{name!r} cannot be assigned by a hook in a loop of {self.title}")

    def _loss(self) -> Any:
        loss = self.loss()
        if loss is None and not self.is_skipped():
            raise ValueError(f"'loss' is not in this batch of {self.title}")
        return loss

    def _metric(self, name: str) -> Any:
        metrics = self.metrics()
        key = name.removeprefix("metrics/")
        if key not in metrics:
            raise ValueError(
                f"{name!r} is not in a batch of {self.title}, which has {sorted(metrics)}"
            )
        return metrics[key]


class BatchEngine(PythonEngine):
    def __init__(self, services: Framework | None = None) -> None:
        self._services = services or PythonEngine()

    def memory(self) -> dict[str, int]:
        return self._services.memory()

    def start_profile(self, folder: Any, step: int) -> Any:
        return self._services.start_profile(folder, step)


class BatchTensors(NamedValues):
    def __init__(self, graph: Graph, values: BatchValues) -> None:
        super().__init__(graph)
        self._values = values

    def make(self, name: str) -> Operation:
        reader = self._summaries if name == SUMMARIES else self._values.reader(name)
        if reader is None:
            raise ValueError(
                f"nothing is named {name!r} in a batch of {self._values.title}: "
                f"{self._values.unknown(name)}"
            )
        number = -1 - len(self._made)  # below those of all operations that take it
        return Operation(self._graph, "BatchValue", name, number, fn=reader)

    def _summaries(self) -> Summary:
        values = []
        for tag, it in self._values.scalars().items():
            with suppress(TypeError, ValueError):  # a matrix makes no curve
                values.append(scalar_value(tag, it))
        return Summary(values)


class BatchGraph(ValueGraph):
    """A graph whose tensors are the ``values`` of a framework's batches, by name.

    ``"batch"`` is the batch itself, ``"summaries"`` all its numbers as a summary.
    """

    def __init__(self, values: BatchValues, engine: BatchEngine) -> None:
        super().__init__(engine)
        self.exposed = values
        self.values = BatchTensors(self, values)
        self._checked: set[Any] = set()
        with self.as_default():
            get_or_create_global_step()
            self.batch = group(name=BATCH)

    @property
    def title(self) -> str:
        return self.exposed.title

    def check(self, fetches: Any) -> None:
        key = nest.structure_key(fetches)
        if key not in self._checked:
            for leaf in nest.leaves(fetches):
                self.as_graph_element(leaf)
            self._checked.add(key)

    def prepare(self, fetches: Sequence[Any]) -> None:
        """Get ready for a batch from which ``fetches`` are taken."""

    def release(self) -> None:
        """Undo ``prepare``."""


class BatchSession(Session):
    """Begins at ``step``; its runs read what the framework's batches have left."""

    def __init__(self, graph: BatchGraph, step: int) -> None:
        super().__init__(graph)
        self._exposed = graph.exposed
        self._move_to(step)

    def count(self, step: int) -> None:
        self._move_to(step)
        self._values.runs += 1
        self._values.changes += 1

    def run_batch(self, fetches: Any, step: int) -> Any:
        result = self.run(fetches)
        self._move_to(step)
        self._values.changes += 1
        return result

    def _move_to(self, step: int) -> None:
        variable = self._values.step_variable
        assert variable is not None, "a BatchGraph has a global step"
        self._values.update({variable: step})

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

    def _refuse(self) -> NoReturn:
        title = self._exposed.title
        raise RuntimeError(
            f"a hook cannot save or load the state of a training that {title} runs: let {title} "
            "save its checkpoints, which hold the states of the hooks too"
        )

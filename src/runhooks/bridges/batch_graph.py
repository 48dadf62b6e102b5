"""``BatchGraph``: what a framework exposes of its batches, as tensors that hooks fetch by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runhooks.engines.numpy.engine import PythonEngine
from runhooks.graph import nest
from runhooks.graph.build import group
from runhooks.graph.framework import Framework
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.graph import Graph
from runhooks.graph.named_values import NamedValues, ValueGraph
from runhooks.graph.tensor import Effect, Operation, Placement, Tensor
from runhooks.near_names import suggestion
from runhooks.summary import Summary, scalar_value

BATCH = "batch"
SUMMARIES = "summaries"


class BatchValues:
    """What a framework exposes of the batch it has just made; each bridge extends it."""

    #: How the framework is written in prose.
    title: str

    def reader(self, name: str) -> Callable[[], Any] | None:
        """Return a function that reads the value called ``name`` after a batch, or None."""
        raise NotImplementedError

    def names(self) -> Iterable[str]:
        """Return the names that are known now, for messages."""
        raise NotImplementedError

    def unknown(self, name: str) -> str:
        """Return why there is no value called ``name``, as the end of a sentence."""
        return f"{self.title} exposes {sorted(self.names())}{suggestion(name, self.names())}"

    def scalars(self) -> Mapping[str, Any]:
        """Return the numbers of the batch by name: its loss, its metrics, the learning rate."""
        raise NotImplementedError

    def assign(self, name: str, value: Any) -> None:
        """Give what is called ``name`` a new value between batches; raise ValueError if it cannot.

        By default nothing can be assigned.
        """
        raise ValueError(f"{name!r} cannot be assigned by a hook in a loop of {self.title}")


class BatchEngine(PythonEngine):
    """Reads values of batches, and calls functions of them, one by one.

    Args:
        services: The framework whose devices have a memory and a profiler; None: Python's own.
    """

    def __init__(self, services: Framework | None = None) -> None:
        self._services = services

    def memory(self) -> dict[str, int]:
        return {} if self._services is None else self._services.memory()

    def start_profile(self, folder: Any, step: int) -> Any:
        if self._services is None:
            return super().start_profile(folder, step)
        return self._services.start_profile(folder, step)


class BatchTensors(NamedValues):
    """The ``values`` of batches as tensors of ``graph``, one for each name that is asked for."""

    def __init__(self, graph: Graph, values: BatchValues) -> None:
        self._graph = graph
        self._values = values
        self._made: dict[str, Operation] = {}

    @property
    def operations(self) -> list[Operation]:
        return list(self._made.values())

    def find(self, name: str) -> Tensor:
        key = name.removesuffix(":0")
        if key not in self._made:
            reader = self._summaries if key == SUMMARIES else self._values.reader(key)
            if reader is None:
                raise ValueError(
                    f"nothing is named {name!r} in a batch of {self._values.title}: "
                    f"{self._values.unknown(key)}"
                )
            self._made[key] = self._operation(key, reader)
        return self._made[key].outputs[0]

    def _summaries(self) -> Summary:
        return Summary([scalar_value(tag, it) for tag, it in self._values.scalars().items()])

    def _operation(self, name: str, reader: Callable[[], Any]) -> Operation:
        return Operation(
            self._graph,
            "BatchValue",
            name,
            -1 - len(self._made),  # below those of all operations that take it
            fn=reader,
            args=(),
            inputs=(),
            read_args=lambda values: (),
            control_inputs=(),
            num_outputs=1,
            placement=Placement.ENGINE,
            assigns=None,
            effect=Effect.NONE,
        )


class BatchGraph(ValueGraph):
    """A graph whose tensors are the ``values`` of a framework's batches, by name.

    ``"batch"`` is the batch itself, and ``"summaries"`` all its numbers as one summary. Hooks may
    add functions of tensors to it in ``begin``, as to any graph.
    """

    def __init__(self, values: BatchValues, engine: BatchEngine) -> None:
        super().__init__(engine)
        #: What the framework exposes.
        self.exposed = values
        self._tensors = BatchTensors(self, values)
        self._checked: set[Any] = set()
        with self.as_default():
            get_or_create_global_step()
            #: The operation that stands for the framework's batch.
            self.batch = group(name=BATCH)

    @property
    def values(self) -> NamedValues:
        return self._tensors

    @property
    def title(self) -> str:
        """The name of the framework whose batches these are."""
        return self.exposed.title

    def check(self, fetches: Any) -> None:
        """Raise ValueError or TypeError for what cannot be fetched."""
        key = nest.structure_key(fetches)
        if key not in self._checked:
            for leaf in nest.leaves(fetches):
                self.as_graph_element(leaf)
            self._checked.add(key)

    def prepare(self, fetches: Sequence[Any]) -> None:
        """Get ready for a batch from which ``fetches`` are taken."""

    def release(self) -> None:
        """Let go of what ``prepare`` has made ready."""

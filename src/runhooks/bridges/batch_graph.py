"""``BatchGraph``: what a framework exposes of its batches, as tensors that hooks fetch by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.engines.numpy.engine import PythonEngine
from runhooks.graph import nest
from runhooks.graph.build import group
from runhooks.graph.framework import Framework
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.graph import Graph
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


class BatchGraph(Graph):
    """A graph whose tensors are the ``values`` of a framework's batches, by name.

    ``"batch"`` is the batch itself, and ``"summaries"`` all its numbers as one summary. Hooks may
    add functions of tensors to it in ``begin``, as to any graph.
    """

    def __init__(self, values: BatchValues, engine: BatchEngine) -> None:
        super().__init__(engine)
        self._values = values
        self._made: dict[str, Operation] = {}
        self._checked: set[Any] = set()
        with self.as_default():
            get_or_create_global_step()
            #: The operation that stands for the framework's batch.
            self.batch = group(name=BATCH)

    @property
    def title(self) -> str:
        """The name of the framework whose batches these are."""
        return self._values.title

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor called ``name``; raise ValueError if there is none."""
        element = self.as_graph_element(name)
        return element if isinstance(element, Tensor) else element.outputs[0]

    def as_graph_element(self, element: Any) -> Tensor | Operation:
        if not isinstance(element, str) or self.has_operation(element.partition(":")[0]):
            return super().as_graph_element(element)
        return self.find(element)

    def get_tensor_by_name(self, name: str) -> Tensor:
        if self.has_operation(name.partition(":")[0]):
            return super().get_tensor_by_name(name)
        try:
            return self.find(name)
        except ValueError as error:
            raise KeyError(error.args[0]) from None

    def get_operations(self) -> list[Operation]:
        return [*self._made.values(), *super().get_operations()]

    def find(self, name: str) -> Tensor:
        """Return the value called ``name``, with or without ``":0"``; raise ValueError if none."""
        key = name.removesuffix(":0")
        if key not in self._made:
            reader = self._summaries if key == SUMMARIES else self._values.reader(key)
            if reader is None:
                raise ValueError(
                    f"nothing is named {name!r} in a batch of {self.title}: "
                    f"{self._values.unknown(key)}"
                )
            self._made[key] = self._operation(key, reader)
        return self._made[key].outputs[0]

    def prepare(self, fetches: Any) -> None:
        """Get ready for a batch from which ``fetches`` are taken.

        Raises:
            ValueError, TypeError: For what cannot be fetched.
        """
        key = nest.structure_key(fetches)
        if key not in self._checked:
            for leaf in nest.leaves(fetches):
                self.as_graph_element(leaf)
            self._checked.add(key)

    def release(self) -> None:
        """Let go of what ``prepare`` has made ready."""

    def _summaries(self) -> Summary:
        return Summary([scalar_value(tag, it) for tag, it in self._values.scalars().items()])

    def _operation(self, name: str, reader: Callable[[], Any]) -> Operation:
        return Operation(
            self,
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

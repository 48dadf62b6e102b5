"""``ValueGraph``: a graph whose values can be fetched by name; ``StepValues``: those of a step."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from runhooks.graph import nest
from runhooks.graph.graph import Graph
from runhooks.graph.nodes import LATEST, Below, Operation, Placement, Tensor, paths_below
from runhooks.graph.sources import EPOCH
from runhooks.near_names import suggestion

_GIVEN = ("StepOutput", "Placeholder", "PlaceholderWithDefault", "Variable")

#: Types of operations whose name means their value, where others mean the operation.
_FETCHED_AS_VALUES = (*_GIVEN, "Call", "GetItem", LATEST)

#: Types of operations of which a step is made, with names below its own.
_INSIDE = ("Assign", "AssignAdd", "Call", "Step")


class NamedValues(ABC):
    """Values that have a name, beside the operations of a graph.

    They are made when they are asked for, and not added to the graph, which may be final.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._given: dict[str, Tensor] = {}
        self._made: dict[str, Operation] = {}
        #: Parameters of steps that have their default.
        self.defaulted: set[str] = set()

    @property
    def operations(self) -> list[Operation]:
        return list(self._made.values())

    def add(self, name: str, tensor: Tensor) -> None:
        self._given[name] = tensor

    def find(self, name: str) -> Tensor:
        """Return the tensor of that name, with or without ``":0"``; ValueError: there is none."""
        key = name.removesuffix(":0")
        if key in self._given:
            return self._given[key]
        if key not in self._made:
            self._made[key] = self.make(key)
        return self._made[key].outputs[0]

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._made and self.is_unsure(name):
                del self._made[name]

    def is_unsure(self, name: str) -> bool:
        """Return whether it will be known only later if anything has that name."""
        return False

    def operation_names(self) -> Iterator[str]:
        """Yield the names of operations, but for those that a step is made of."""
        names = {op.name for op in self._graph.get_operations()}
        for op in self._graph.get_operations():
            is_inside = op.type in _INSIDE and op.name.rpartition("/")[0] in names
            if op.type != "Part" and not is_inside:
                yield op.name

    @abstractmethod
    def make(self, name: str) -> Operation:
        """Return an operation that has the value called ``name``; ValueError: there is none."""

    def part(
        self, name: str, path: str, whole: Tensor, missing: Callable[[Any], Exception]
    ) -> Operation:
        # Behind what it needs, before what is added later, and the same in each process.
        number = whole.op.number + (zlib.crc32(name.encode()) + 1) / 2**33
        return Operation(
            self._graph,
            "Part",
            name,
            number,
            fn=Below(path, self._graph.engine.children, missing),
            args=(whole,),
            inputs=(whole,),
            read_args=nest.args_reader((whole,)),
            placement=Placement.EITHER,
        )

    def comes_first(self, name: str) -> bool:
        """Return whether ``name`` means a value even if an operation has it."""
        return False

    def check_text(self, text: str) -> None:
        """Raise TypeError if ``text``, an argument of a call, names a value."""
        if self.comes_first(text):
            raise TypeError(
                f"{text!r} is the name of a tensor: give graph[{text!r}]; or for the text itself, "
                "functools.partial(fn, ...)"
            )


class ValueGraph(Graph):
    """A graph in which names mean values: its operations', and those that ``values`` finds."""

    values: NamedValues

    def __getitem__(self, name: str) -> Tensor:
        element = self.as_graph_element(name)
        if isinstance(element, Tensor):
            return element
        if not element.outputs:
            raise ValueError(f"the operation {name!r} has no value: fetch it to have it done")
        return element.outputs[0]

    def as_graph_element(self, element: Any) -> Tensor | Operation:
        if not isinstance(element, str):
            return super().as_graph_element(element)
        before, _, index = element.rpartition(":")
        operation = before if index.isdecimal() else element
        if self.values.comes_first(operation):
            return self.values.find(element)
        if not self.has_operation(operation):
            if operation == EPOCH and (epoch := self.epoch) is not None:
                return epoch
            return self.values.find(element)
        found = super().as_graph_element(element)
        is_operation = isinstance(found, Operation) and len(found.outputs) == 1
        if is_operation and found.type in _FETCHED_AS_VALUES:
            return found.outputs[0]
        return found

    def forget(self, names: Iterable[str]) -> None:
        self.values.forget(name.removesuffix(":0") for name in names)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        before = {op.name for op in self.values.operations}
        with super().in_use():
            try:
                yield
            finally:
                # Hooks that are gone wanted them.
                self.forget({op.name for op in self.values.operations} - before)

    def is_defaulted(self, name: str) -> bool:
        return name.removesuffix(":0") in self.values.defaulted

    def is_value(self, element: Any) -> bool:
        found = self.as_graph_element(element)
        op = found.op if isinstance(found, Tensor) else found
        return op.type in (*_GIVEN, "Part") or super().is_value(op)

    def check_text(self, text: str) -> None:
        self.values.check_text(text)

    def get_tensor_by_name(self, name: str) -> Tensor:
        try:
            return super().get_tensor_by_name(name)
        except KeyError:
            if not name.endswith(":0"):
                raise
        try:
            return self.values.find(name)
        except ValueError as error:
            raise KeyError(error.args[0]) from None

    def get_operations(self) -> list[Operation]:
        return [*self.values.operations, *super().get_operations()]


def to_feed(parameter: str) -> str:
    return (
        f": a parameter with a default is no tensor. To feed it, give the graph {parameter}="
        "lambda: rh.placeholder_with_default(...)"
    )


#: Stands for the outputs of the step.
OUTPUTS = ""


class StepValues(NamedValues):
    """The values of a step: ``"state/params/w"`` of an argument, ``"grads/w"`` of an output.

    ``learn`` gets them in the first call or trace of the step.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._step = ""
        self._outputs: Tensor | None = None
        self._paths: dict[str, frozenset[str]] = {}
        self._texts: list[str] = []  # arguments of functions

    def add_outputs(self, step: str, outputs: Tensor) -> None:
        """Let names in ``outputs``, a dict, mean its values, also as ``"<step>/<name>"``."""
        self._step, self._outputs = step, outputs

    def learn(self, values: Mapping[str, Any]) -> None:
        """Note what there is in ``values``, the arguments and outputs of the step by name.

        ValueError: a name that was asked for is not there; TypeError: a function is called with
        such a name in place of its tensor.
        """
        children = self._graph.engine.children
        for name in values.keys() - self._paths.keys():
            self._paths[name] = frozenset(paths_below(values[name], children))
        lacking = [name for name in self._made if self._is_lacking(name)]
        for name in lacking:
            del self._made[name]  # or the next session would be told, too
        if lacking:
            raise self._unknown(lacking[0])
        for text in self._texts:
            super().check_text(text)

    def check_text(self, text: str) -> None:
        super().check_text(text)
        self._texts.append(text)

    def is_unsure(self, name: str) -> bool:
        return self._place(name)[0] not in self._paths

    def _is_lacking(self, name: str) -> bool:
        root, path = self._place(name)
        return root in self._paths and path not in self._paths[root]

    def comes_first(self, name: str) -> bool:
        if name in self._made or name in self._given:
            return True
        root, path = self._place(name)
        return path in self._paths.get(root, ())

    def make(self, name: str) -> Operation:
        if self._is_lacking(name):
            raise self._unknown(name)
        root, path = self._place(name)
        whole = self._outputs if root == OUTPUTS else self._given[root]
        assert whole is not None, "a step has outputs before a name is asked for"
        return self.part(name, path, whole, partial(self._missing, name))

    def _place(self, name: str) -> tuple[str, str]:
        owner, _, path = name.partition("/")
        if owner == self._step and path:
            return OUTPUTS, path
        if path and name not in self._paths.get(OUTPUTS, ()) and self._is_whole(owner):
            return owner, path
        return OUTPUTS, name

    def _is_whole(self, owner: str) -> bool:
        if owner not in self._given and self._graph.has_operation(owner):
            op = self._graph.get_operation_by_name(owner)
            if op.type in ("Call", "Variable") and len(op.outputs) == 1:
                self.add(owner, op.outputs[0])
        return owner in self._given

    def _missing(self, name: str, whole: Any) -> ValueError:
        root, path = self._place(name)
        if path in self._paths.get(root, ()):
            had = f"the step {self._step!r} returned" if root == OUTPUTS else f"{root!r} had"
            return ValueError(
                f"{had} {path!r} in the first run, and must in each, but in this one only "
                f"{list(self._graph.engine.children(whole))}"
            )
        known = frozenset(paths_below(whole, self._graph.engine.children))
        return self._unknown(name, {**self._paths, root: known})

    def _unknown(self, name: str, paths: Mapping[str, frozenset[str]] | None = None) -> ValueError:
        known = self._known(self._paths if paths is None else paths)
        outputs = sorted(path for path in self._paths.get(OUTPUTS, ()) if "/" not in path)
        gives = f" ({self._step!r} gives {', '.join(map(repr, outputs)) or 'no outputs'})"
        if OUTPUTS not in self._paths:
            gives = ""
        key = name.removesuffix(":0")
        near = to_feed(key) if key in self.defaulted else suggestion(key, known)
        if key not in self.defaulted and "output" in outputs:
            near += "; give outputs=[...], names for what the step returns without any"
        return ValueError(f"nothing is named {name!r} in the graph{gives}{near}")

    def _known(self, paths: Mapping[str, frozenset[str]]) -> Iterator[str]:
        yield from self.operation_names()
        yield from self._given
        for name, its_paths in paths.items():
            yield from sorted(path if name == OUTPUTS else f"{name}/{path}" for path in its_paths)

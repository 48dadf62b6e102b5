"""``Averages``: moving averages of variables and objects, as operations of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from runhooks.graph import call, placeholder
from runhooks.graph.each_step import EachStep
from runhooks.graph.engine import Engine
from runhooks.graph.global_step import get_global_step
from runhooks.graph.graph import Graph, own_graph
from runhooks.graph.initial import InitialFrom
from runhooks.graph.tensor import Effect, Operation, Tensor, Variable
from runhooks.near_names import suggestion

_COLLECTION = "moving_averages"


class Averages:
    """Moving averages in a graph, updated in the runs that change what they are averages of.

    Args:
        graph: The graph, which is the default graph.
        name: What stands in front of their names.
        parts: The names, in checkpoints, of variables, objects or parts of these.
        each_step: Whether there is an update in each step, and not now and then.

    Raises:
        ValueError: If no variable or object has such a name.
    """

    def __init__(self, graph: Graph, name: str, parts: Collection[str], *, each_step: bool) -> None:
        self._graph = graph
        self._each_step = each_step
        #: The names of the averages by those of the parts.
        self.places = {part: f"{name}/{part}" for part in parts}
        #: How far an update moves the averages; fed in each run that makes one.
        self.weight: Tensor = placeholder(f"{name}/weight")
        self._updates: dict[Operation, list[Operation]] = {}  # by what changes the parts
        objects = graph.objects
        of_objects = [part for part in parts if objects is not None and objects.owns(part)]
        if objects is not None and of_objects:
            self._follow_steps(name, objects.averages(name, of_objects))
        for part in self.places:
            if part not in of_objects:
                self._follow_variable(part)

    def updates_in(self, fetches: Any, feed_keys: Iterable[Any]) -> list[Operation]:
        """Return the updates to make in a run of ``fetches``; empty if it changes no part."""
        effects = self._graph.effects_of(fetches, feed_keys)
        steps = sorted(effects.steps, key=lambda op: op.number)
        # Of several changes in one run, the last one leaves the value to average.
        last = {op.assigns: self._updates.get(op, []) for op in (*effects.assignments, *steps)}
        return [update for updates in last.values() for update in updates]

    def _follow_variable(self, part: str) -> None:
        variable = _variable_of(self._graph, part)
        path = part[len(variable.op.name) + 1 :]
        engine = self._graph.engine
        initial = InitialFrom(variable, partial(_wide, engine, part, path))
        average = Variable(initial, name=self.places[part], trainable=False)
        for op in self._graph.get_operations():
            if op.assigns is variable:
                move = partial(_moved, engine, part, path)
                fn = EachStep(move) if self._each_step else move
                new = call(fn, average, op.outputs[0], self.weight, name=f"{average.op.name}/move")
                self._updates.setdefault(op, []).append(average.assign(new).op)

    def _follow_steps(self, name: str, update: Callable[[float], None]) -> None:
        for op in self._graph.get_operations():
            if op.effect is Effect.STEP and _counts(self._graph, op):
                follow = partial(_after_step, update)
                self._updates[op] = [
                    call(follow, op.outputs[0], self.weight, num_outputs=0, name=f"{name}/move")
                ]


def averages_of(name: str, parts: Collection[str], *, each_step: bool) -> Averages:
    """Return the averages of the default graph of that name; they are added if it has none.

    Arguments are those of ``Averages``.

    Raises:
        TypeError: If the graph is a framework's own.
        ValueError: As ``Averages``, or if those of that name are of other parts.
    """
    graph = own_graph()
    for found_name, found in graph.get_collection(_COLLECTION):
        if found_name == name:
            if list(found.places) != list(parts):
                raise ValueError(
                    f"name must be another one, got {name!r}: the graph has averages of that name, "
                    f"of {list(found.places)}"
                )
            return found  # type: ignore[no-any-return]
    made = Averages(graph, name, parts, each_step=each_step)
    graph.add_to_collection(_COLLECTION, (name, made))
    return made


def _variable_of(graph: Graph, part: str) -> Variable:
    variables = {
        op.name: output
        for op in graph.get_operations()
        for output in op.outputs
        if isinstance(output, Variable) and not output.on_host
    }
    ends = [i for i, letter in enumerate(part) if letter == "/"]
    for end in (len(part), *reversed(ends)):
        if part[:end] in variables:
            return variables[part[:end]]
    near = suggestion(part.partition("/")[0], variables)
    raise ValueError(f"no variable or object of the graph is named {part!r}{near}")


def _counts(graph: Graph, step: Operation) -> bool:
    global_step = get_global_step(graph)
    return any(op.assigns is global_step for op in step.control_inputs)


def _leaves(engine: Engine, part: str, path: str, value: Any) -> dict[str, Any]:
    leaves = engine.leaves(value)
    if not path:
        return leaves
    if path in leaves:
        return {"": leaves[path]}
    found = {key[len(path) + 1 :]: it for key, it in leaves.items() if key.startswith(f"{path}/")}
    if not found:
        owner = part[: len(part) - len(path)]
        known = [owner + key for key in leaves]
        raise ValueError(f"nothing of the graph is named {part!r}{suggestion(part, known)}")
    return found


def _wide(engine: Engine, part: str, path: str, value: Any) -> dict[str, Any]:
    return {key: engine.wide(it) for key, it in _leaves(engine, part, path, value).items()}


def _moved(
    engine: Engine, part: str, path: str, averages: dict[str, Any], value: Any, weight: Any
) -> dict[str, Any]:
    new = _leaves(engine, part, path, value)
    return {key: engine.average(old, new[key], weight) for key, old in averages.items()}


def _after_step(update: Callable[[float], None], returned: Any, weight: float) -> None:
    update(weight)

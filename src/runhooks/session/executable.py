"""``Executable``: a plan made ready, and the way of one run from the feeds to the result.

feeds, inputs, counters -> head (host) -> body (engine) -> tail (host) -> all variables at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from runhooks.errors import OutOfRangeError
from runhooks.graph.evaluate import evaluate, parts
from runhooks.graph.graph import Graph
from runhooks.graph.nest import reader
from runhooks.graph.plan import Plan, make_plan
from runhooks.graph.source import OpenInput
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable
from runhooks.session.feeds import converter

Variables = dict[Variable, Any]
Inputs = Mapping[Operation, OpenInput]
Run = Callable[[Variables, Inputs, Any], Any]


class Executable:
    """What one set of fetches and feeds compiled to. It holds nothing of any session.

    ``feed_keys`` are the keys of the feed_dict as the caller writes them, in their order.
    Raises as ``make_plan``.
    """

    def __init__(self, graph: Graph, fetches: Any, feed_keys: tuple[Any, ...]) -> None:
        self._plan = plan = make_plan(graph, fetches, feed_keys)
        self._read = reader(plan.result)
        self._integer = graph.engine.integer
        self._body = None if plan.body.is_empty else graph.compiled(plan.body)
        self._feeds = [(k, converter(t)) for k, t in zip(feed_keys, plan.feeds, strict=True)]
        #: The variables and inputs that a session must have before it runs this.
        self.variables = {*plan.body.assigned, *plan.body.kept, *plan.counters, *_assigned(plan)}
        self.inputs = plan.inputs
        #: The variables that it changes.
        self.changed = {*plan.body.assigned, *_assigned(plan)}
        #: ``run(variables, inputs, feed_dict)`` computes the fetches, and puts the new values
        #: into ``variables`` once all has succeeded.
        self.run: Run = self._body_run() if self._is_only_body() else self._run_all

    def _is_only_body(self) -> bool:
        plan = self._plan
        counted = {t for op in plan.head for t in op.outputs}
        return (
            all(op.type == "AssignAdd" and type(op.args[0]) is int for op in plan.head)
            and plan.fetches <= set(plan.body.fetches)
            and counted.isdisjoint(plan.body.given)
            and not plan.tail
        )

    def _body_run(self) -> Run:
        # The way of a training step: the host has nothing to do but to count the global step. Off
        # steps are as fast as this function is.
        plan, body, feeds = self._plan, self._body, self._feeds
        assigned = plan.body.assigned
        # What the body gives: the new values of `assigned`, and then those of its fetches.
        place = {tensor: len(assigned) + i for i, tensor in enumerate(plan.body.fetches)}
        read, is_operation = reader(plan.result, place.__getitem__), plan.result is None
        sources = [*plan.feeds, *(t for op in plan.inputs for t in op.outputs), *plan.counters]
        places = [sources.index(tensor) for tensor in plan.body.given]
        in_place = places == list(range(len(sources)))
        from_host = bool(plan.inputs or plan.counters)
        increments = [(op.assigns, op.args[0]) for op in plan.head if op.assigns is not None]

        def run(variables: Variables, inputs: Inputs, feed_dict: Any) -> Any:
            results: Sequence[Any] = ()
            given = [convert(feed_dict[key]) for key, convert in feeds]
            if from_host:
                given += [value for op in plan.inputs for value in _drawn(op, inputs[op])]
                given += [self._integer(variables[counter]) for counter in plan.counters]
            if body is not None:
                results = body(variables, given if in_place else [given[i] for i in places])
                for variable, value in zip(assigned, results):  # noqa: B905 - then come fetches
                    variables[variable] = value
            for counter, delta in increments:
                variables[counter] += delta
            return None if is_operation else read(results)

        return run

    def _run_all(self, variables: Variables, inputs: Inputs, feed_dict: Any) -> Any:
        plan, body = self._plan, self._plan.body
        values: dict[Tensor, Any] = {
            tensor: convert(feed_dict[key])
            for tensor, (key, convert) in zip(plan.feeds, self._feeds, strict=True)
        }
        for op in plan.inputs:
            for tensor, value in zip(op.outputs, _drawn(op, inputs[op]), strict=True):
                values.setdefault(tensor, value)
        values.update((counter, np.int64(variables[counter])) for counter in plan.counters)
        counted = evaluate(plan.head, values, variables, _conform)
        new: Variables = {}
        if self._body is not None:
            results = self._body(variables, [self._for_engine(values[t]) for t in body.given])
            new.update(zip(body.assigned, results))  # noqa: B905 - then come the fetches
            values.update(zip(body.fetches, results[len(new) :], strict=True))
        try:
            counted |= evaluate(plan.tail, values, {**variables, **counted}, _conform)
        except BaseException:
            if body.donate:  # the old values are gone
                variables.update(new)
            raise
        variables.update(new)
        variables.update((counter, int(value)) for counter, value in counted.items())
        return self._read(values)

    def _for_engine(self, value: Any) -> Any:
        return self._integer(int(value)) if type(value) is np.int64 else value


def _assigned(plan: Plan) -> Iterable[Variable]:
    return (op.assigns for op in (*plan.head, *plan.tail) if op.assigns is not None)


def _drawn(op: Operation, opened: OpenInput) -> tuple[Any, ...]:
    try:
        return parts(op, next(opened.iterator))
    except StopIteration:
        raise OutOfRangeError(None, op, f"the input {op.name!r} has no more elements") from None
    except Exception as error:
        error.add_note(f"in the input {op.name!r} of the graph")
        raise


def _conform(name: str, old: Any, new: Any) -> np.int64:
    if type(new) is int:  # the rule: a step more
        return np.int64(new)
    array = np.asarray(new)
    if array.shape != () or array.dtype.kind not in "iu":
        raise ValueError(
            f"variable {name!r} is an integer on the host: the new value is "
            f"{array.dtype}{list(array.shape)}"
        )
    return np.int64(array)

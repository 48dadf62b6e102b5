"""``Executable``: a plan made ready to run, from the feeds to the results.

feeds, inputs, counters -> head (host) -> body (engine) -> tail (host) -> all variables at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from runhooks.contract import PreparedRun
from runhooks.errors import add_note
from runhooks.graph.engine import AssignedError, Compiled, Engine
from runhooks.graph.evaluate import evaluate, outputs_of
from runhooks.graph.graph import Graph
from runhooks.graph.kept_buffers import KeptBuffers
from runhooks.graph.nest import reader
from runhooks.graph.plan import Body, Plan, make_plan
from runhooks.graph.source import OpenInput
from runhooks.graph.tensor import Operation, Tensor, Variable
from runhooks.session.body_run import LANDED, BodyRun, Feeds, drawn, is_only_body, landed
from runhooks.session.feeds import converter
from runhooks.session.inputs import SessionInputs
from runhooks.session.values import VariableValues

Variables = dict[Variable, Any]
WarmUp = Callable[[Variables, Mapping[Operation, OpenInput], Any], None]


@dataclass(frozen=True)
class Executable:
    """One set of fetches and feeds, made ready to run. It holds nothing of any session.

    Attributes:
        variables: The variables that a session must have before it runs this.
        inputs: The inputs that it must have opened.
        changed: The variables that a run changes.
        bound: ``bound(fetches, values, inputs)`` returns the run of a session with these variables
            and inputs. It puts new values in place once everything has succeeded.
        warm_up: ``warm_up(variables, inputs, feed_dict)`` compiles what the run needs. It changes
            nothing; what an input gives is still there.
    """

    variables: frozenset[Variable]
    inputs: tuple[Operation, ...]
    changed: frozenset[Variable]
    bound: Callable[[Any, VariableValues, SessionInputs], PreparedRun]
    warm_up: WarmUp


def make_executable(
    graph: Graph, fetches: Any, feed_keys: tuple[Any, ...], kept: KeptBuffers | None = None
) -> Executable:
    """Make ``fetches`` ready to run.

    Args:
        graph: The graph they belong to.
        fetches: As for ``Session.run``.
        feed_keys: The keys of the feed_dict as the caller writes them, in their order.
        kept: Buffers of one session that are to be left alone.

    Raises:
        ValueError, TypeError: As ``make_plan``.
    """
    plan = make_plan(graph, fetches, feed_keys)
    body = None if plan.body.is_empty else _compiled(graph, plan.body, kept)
    feeds = [(key, converter(t)) for key, t in zip(feed_keys, plan.feeds, strict=True)]
    make_run = BodyRun if is_only_body(plan) else PhasedRun
    changed = frozenset({*plan.body.assigned, *_assigned_on_host(plan)})
    return Executable(
        variables=frozenset({*changed, *plan.body.kept, *plan.counters}),
        inputs=plan.inputs,
        changed=changed,
        bound=lambda fetches, *held: make_run(fetches, feeds, plan, body, graph.engine, *held),
        warm_up=_warm_up(plan, feeds, graph),
    )


def _compiled(graph: Graph, body: Body, kept: KeptBuffers | None) -> Compiled:
    return graph.compiled(body) if kept is None else graph.keeping_run(body, kept)


class PhasedRun(PreparedRun):
    """The run of ``plan`` in one session, if the host computes before or after the engine.

    The arguments are those of ``BodyRun``.
    """

    __slots__ = ("_body", "_changes", "_engine", "_held", "_inputs", "_known", "_plan", "_read")

    def __init__(
        self,
        fetches: Any,
        feeds: Feeds,
        plan: Plan,
        body: Compiled | None,
        engine: Engine,
        held: VariableValues,
        inputs: SessionInputs,
    ) -> None:
        super().__init__(fetches, (key for key, _ in feeds))
        self._plan = plan
        self._body = body
        self._engine = engine
        self._held = held
        self._inputs = inputs
        self._known = partial(_known, plan, feeds)
        self._changes = bool(plan.body.assigned or list(_assigned_on_host(plan)))
        self._read = reader(plan.result)

    def again(self, feed_dict: Any) -> Any:
        """Make the run, and return the values of the fetches."""
        with self._held.lock:
            values = self._run(self._known(feed_dict))
            self._held.runs += 1
            self._held.changes += self._changes
            return self._read(values)

    def _run(self, values: dict[Tensor, Any]) -> dict[Tensor, Any]:
        """Add the values of all tensors to ``values``, and return these."""
        plan = self._plan
        for op in plan.inputs:
            try:
                _take_in(values, op, drawn(op, self._inputs.at(op)))
            except Exception as error:
                self._inputs.error = error if op is plan.inputs[0] else None
                raise
        variables = self._held.by_variable  # only now: a source may look at variables
        values.update((counter, np.int64(variables[counter])) for counter in plan.counters)
        counted = evaluate(plan.head, values, variables, _conform)
        new: Variables = {}
        if self._body is not None:
            try:
                results = self._body(variables, _given(plan, values, self._engine))
            except AssignedError as failed:
                self._land(failed.new, counted)
                raise landed(failed) from None
            # Each zip ends with its tensors: more results may follow.
            new.update(zip(plan.body.assigned, results))  # noqa: B905
            values.update(zip(plan.body.fetches, results[len(new) :]))  # noqa: B905
        try:
            variables = {**self._held.by_variable, **counted}
            counted |= evaluate(plan.tail, values, variables, _conform)
        except BaseException as error:
            if new and plan.body.donate and self._engine.donates:
                # The old values are gone: all that was computed lands.
                self._land(new, counted)
                add_note(error, LANDED.format("on the host"))
            raise
        self._land(new, counted)
        return values

    def _land(self, new: Mapping[Variable, Any], counted: Mapping[Variable, Any]) -> None:
        variables = self._held.by_variable
        variables.update(new)
        variables.update((counter, int(value)) for counter, value in counted.items())


def _warm_up(plan: Plan, feeds: Feeds, graph: Graph) -> WarmUp:
    """Return the function that compiles what a run of ``plan`` needs."""

    def warm_up(
        variables: Variables, inputs: Mapping[Operation, OpenInput], feed_dict: Any
    ) -> None:
        values = _known(plan, feeds, feed_dict)
        for op in plan.inputs:
            try:
                _take_in(values, op, outputs_of(op, inputs[op].peek()))
            except StopIteration:  # there will be no such run
                return
        values.update((counter, np.int64(variables[counter])) for counter in plan.counters)
        evaluate(plan.head, values, variables, _conform)
        graph.warm_up(plan.body, variables, _given(plan, values, graph.engine))

    return warm_up


def _known(plan: Plan, feeds: Feeds, feed_dict: Any) -> dict[Tensor, Any]:
    return {
        tensor: convert(feed_dict[key])
        for tensor, (key, convert) in zip(plan.feeds, feeds, strict=True)
    }


def _take_in(values: dict[Tensor, Any], op: Operation, elements: Sequence[Any]) -> None:
    for tensor, value in zip(op.outputs, elements, strict=True):
        values.setdefault(tensor, value)


def _given(plan: Plan, values: Mapping[Tensor, Any], engine: Engine) -> list[Any]:
    given = [values[tensor] for tensor in plan.body.given]
    return [engine.integer(int(it)) if type(it) is np.int64 else it for it in given]


def _assigned_on_host(plan: Plan) -> Iterable[Variable]:
    return (op.assigns for op in (*plan.head, *plan.tail) if op.assigns is not None)


def _conform(name: str, old: Any, new: Any) -> np.int64:
    if type(new) is int and -(2**63) <= new < 2**63:  # the rule: a step more
        return np.int64(new)
    array = np.asarray(new)
    if array.shape != () or array.dtype.kind not in "iu":
        raise ValueError(
            f"variable {name!r} is an integer on the host: the new value is "
            f"{array.dtype}{list(array.shape)}"
        )
    if not -(2**63) <= int(array) < 2**63:
        raise ValueError(f"variable {name!r} is an int64 on the host, and cannot hold {array}")
    return np.int64(array)

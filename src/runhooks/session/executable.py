"""``Executable``: a plan made ready to run, from the feeds to the results.

feeds, inputs, counters -> head (host) -> body (engine) -> tail (host) -> all variables at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runhooks.errors import OutOfRangeError, add_note
from runhooks.graph.engine import AssignedError, Compiled, Engine
from runhooks.graph.evaluate import evaluate, outputs_of
from runhooks.graph.graph import Graph
from runhooks.graph.kept_buffers import KeptBuffers
from runhooks.graph.nest import reader
from runhooks.graph.plan import Body, Plan, make_plan
from runhooks.graph.source import OpenInput
from runhooks.graph.tensor import Operation, Tensor, Variable
from runhooks.session.feeds import Converter, converter

Variables = dict[Variable, Any]
Inputs = Mapping[Operation, OpenInput]
Run = Callable[[Variables, Inputs, Any], Any]

#: The keys of a feed_dict, each with a function that checks and converts the value.
Feeds = Sequence[tuple[Any, Converter]]


@dataclass(frozen=True)
class Executable:
    """One set of fetches and feeds, made ready to run. It holds nothing of any session.

    Attributes:
        variables: The variables that a session must have before it runs this.
        inputs: The inputs that it must have opened.
        changed: The variables that a run changes.
        run: ``run(variables, inputs, feed_dict)`` returns the values of the fetches, and puts the
            new values into ``variables`` once everything has succeeded.
        warm_up: Takes the same arguments, and compiles what the run needs. It changes nothing; what
            an input gives is still there.
    """

    variables: frozenset[Variable]
    inputs: tuple[Operation, ...]
    changed: frozenset[Variable]
    run: Run
    warm_up: Run


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
    make_run = _body_run if _is_only_body(plan) else _phased_run
    changed = frozenset({*plan.body.assigned, *_assigned_on_host(plan)})
    return Executable(
        variables=frozenset({*changed, *plan.body.kept, *plan.counters}),
        inputs=plan.inputs,
        changed=changed,
        run=make_run(plan, body, feeds, graph.engine),
        warm_up=_warm_up(plan, feeds, graph),
    )


def _compiled(graph: Graph, body: Body, kept: KeptBuffers | None) -> Compiled:
    return graph.compiled(body) if kept is None else graph.keeping_run(body, kept)


def _is_only_body(plan: Plan) -> bool:
    """Return whether the host has nothing to do but to count, as in a training step."""
    counted = {t for op in plan.head for t in op.outputs}
    return (
        all(op.type == "AssignAdd" and type(op.args[0]) is int for op in plan.head)
        and plan.fetches <= set(plan.body.fetches)
        and counted.isdisjoint(plan.body.given)
        and not plan.tail
    )


def _body_run(plan: Plan, body: Compiled | None, feeds: Feeds, engine: Engine) -> Run:
    """Return the run of a training step. An off-step is as fast as this function is."""
    integer = engine.integer
    assigned = plan.body.assigned
    # The body returns the new values of `assigned`, and then those of its fetches.
    place = {tensor: len(assigned) + i for i, tensor in enumerate(plan.body.fetches)}
    read, is_operation = reader(plan.result, place.__getitem__), plan.result is None
    sources = [*plan.feeds, *(t for op in plan.inputs for t in op.outputs), *plan.counters]
    places = [sources.index(tensor) for tensor in plan.body.given]
    is_ordered = places == list(range(len(sources)))
    from_host = bool(plan.inputs or plan.counters)
    increments = [(op.assigns, op.args[0]) for op in plan.head if op.assigns is not None]

    def run(variables: Variables, inputs: Inputs, feed_dict: Any) -> Any:
        results: Sequence[Any] = ()
        given = [convert(feed_dict[key]) for key, convert in feeds]
        if from_host:
            given += [value for op in plan.inputs for value in _drawn(op, inputs[op])]
            given += [integer(variables[counter]) for counter in plan.counters]
        if body is not None:
            try:
                results = body(variables, given if is_ordered else [given[i] for i in places])
            except AssignedError as failed:
                variables.update(failed.new)
                for counter, delta in increments:
                    variables[counter] += delta
                raise _landed(failed) from None
            for variable, value in zip(assigned, results):  # noqa: B905 - then come fetches
                variables[variable] = value
        for counter, delta in increments:
            variables[counter] += delta
        return None if is_operation else read(results)

    return run


def _phased_run(plan: Plan, body: Compiled | None, feeds: Feeds, engine: Engine) -> Run:
    """Return the run of a plan in which the host computes before or after the engine."""
    read = reader(plan.result)
    gives_up = plan.body.donate and engine.donates

    def run(variables: Variables, inputs: Inputs, feed_dict: Any) -> Any:
        values = _known(plan, feeds, feed_dict)
        for op in plan.inputs:
            _take_in(values, op, _drawn(op, inputs[op]))
        values.update((counter, np.int64(variables[counter])) for counter in plan.counters)
        counted = evaluate(plan.head, values, variables, _conform)
        new: Variables = {}
        if body is not None:
            try:
                results = body(variables, _given(plan, values, engine))
            except AssignedError as failed:
                _land(variables, failed.new, counted)
                raise _landed(failed) from None
            # Each zip ends with its tensors: more results may follow.
            new.update(zip(plan.body.assigned, results))  # noqa: B905
            values.update(zip(plan.body.fetches, results[len(new) :]))  # noqa: B905
        try:
            counted |= evaluate(plan.tail, values, {**variables, **counted}, _conform)
        except BaseException as error:
            if gives_up and new:  # the old values are gone: all that was computed lands
                _land(variables, new, counted)
                add_note(error, _LANDED.format("on the host"))
            raise
        _land(variables, new, counted)
        return read(values)

    return run


def _warm_up(plan: Plan, feeds: Feeds, graph: Graph) -> Run:
    """Return the function that compiles what a run of ``plan`` needs."""

    def warm_up(variables: Variables, inputs: Inputs, feed_dict: Any) -> None:
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


_LANDED = (
    "the variables have their new values all the same: the device had given up the old ones when "
    "this was raised {}"
)


def _landed(failed: AssignedError) -> BaseException:
    add_note(failed.error, _LANDED.format("by what else was asked for"))
    return failed.error


def _land(
    variables: Variables, new: Mapping[Variable, Any], counted: Mapping[Variable, Any]
) -> None:
    variables.update(new)
    variables.update((counter, int(value)) for counter, value in counted.items())


def _assigned_on_host(plan: Plan) -> Iterable[Variable]:
    return (op.assigns for op in (*plan.head, *plan.tail) if op.assigns is not None)


def _drawn(op: Operation, opened: OpenInput) -> tuple[Any, ...]:
    try:
        return outputs_of(op, next(opened.iterator))
    except StopIteration:
        raise OutOfRangeError(None, op, f"the input {op.name!r} has no more elements") from None
    except Exception as error:
        add_note(error, f"in the input {op.name!r} of the graph")
        raise


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

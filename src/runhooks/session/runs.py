"""``Executable``: a plan made ready to run; ``BodyRun``: a run that only the engine works for.

feeds, inputs, counters -> head (host) -> body (engine) -> tail (host) -> all variables at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from runhooks.contract import PreparedRun
from runhooks.engines.conform import check_unassigned
from runhooks.errors import OutOfRangeError, add_note
from runhooks.graph.engine import AssignedError, Compiled, Engine, FlatRun
from runhooks.graph.evaluate import evaluate, outputs_of
from runhooks.graph.graph import Graph
from runhooks.graph.nest import reader
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.plan import Plan, make_plan
from runhooks.graph.source import OpenInput, Source
from runhooks.session.feeds import Converter, converter
from runhooks.session.inputs import SessionInputs
from runhooks.session.states import FlatValues, VariableValues

#: The keys of a feed_dict, each with a function that checks and converts the value.
Feeds = Sequence[tuple[Any, Converter]]

#: What is noted on an error after which variables have new values.
LANDED = (
    "the variables have their new values all the same: the device had given up the old ones when "
    "this was raised {}"
)


def is_only_body(plan: Plan) -> bool:
    """Return whether the host has nothing to do but to count."""
    counted = {t for op in plan.head for t in op.outputs}
    return (
        all(op.type == "AssignAdd" and type(op.args[0]) is int for op in plan.head)
        and plan.fetches <= set(plan.body.fetches)
        and counted.isdisjoint(plan.body.given)
        and not plan.tail
    )


class BodyRun(FlatValues):
    """The run of ``plan`` in one session.

    What the engine compiled is called once with the variables, and then, where the engine has a
    shorter way, with the flat list of values that the run before has returned.

    Args:
        fetches: What is asked for.
        feeds: The keys of the feed_dict.
        plan: What to run; ``is_only_body`` is true of it.
        body: What the engine compiled; None if there is nothing to compute.
        engine: The engine.
        held: The variables of the session.
        inputs: Its inputs.
    """

    __slots__ = (
        *("_body", "_changes", "_counters", "_engine", "_feeds", "_flat", "_held", "_increments"),
        *("_inputs", "_is_given", "_is_operation", "_opened", "_others", "_places", "_read"),
    )

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
        increments = [(op.assigns, op.args[0]) for op in plan.head if op.assigns is not None]
        steps = sum(delta for counter, delta in increments if counter is held.step_variable)
        keys = (key for key, _ in feeds)
        super().__init__(fetches, keys, steps, plan.body.assigned, plan.body.kept)
        self._body = body
        self._engine = engine
        self._held = held
        self._flat: FlatRun | None = None
        self._feeds = feeds
        self._inputs = plan.inputs
        self._opened = inputs
        self._counters = plan.counters
        sources = [*plan.feeds, *(t for op in plan.inputs for t in op.outputs), *plan.counters]
        places = [sources.index(tensor) for tensor in plan.body.given]
        self._places = None if places == list(range(len(sources))) else places
        self._is_given = bool(sources) or bool(plan.body.kept)
        self._increments = increments
        self._others = [it for it in increments if it[0] is not held.step_variable]
        self._changes = bool(plan.body.assigned or increments)
        self._is_operation = plan.result is None
        place = {tensor: i for i, tensor in enumerate(plan.body.fetches)}
        self._read: Callable[[Sequence[Any]], Any] = reader(plan.result, place.__getitem__)

    def again(self, feed_dict: Any) -> Any:
        """Make the run, and return the values of the fetches. An off-step is as fast as this is."""
        held = self._held
        held.acquire()
        try:
            flat = self._flat
            if flat is None:
                return self._run_by_variable(self._take_given(feed_dict))
            given: Sequence[Any] = ()
            if self._is_given:
                given = self._take_given(feed_dict)
                if flat.takes is not None and not flat.takes(given):
                    return self._run_by_variable(given)
            if held.lent is not self:  # only now: the source of an input may look at variables
                held.lend(self)
            old = args = self.values
            if self._is_given:
                args = [*old, *self.kept_values, *given]
            try:
                new = flat.step(*args)
            except Exception as error:
                flat.explain(error, args)
                raise
            if flat.compilation.since is not None:
                flat.log()
            rest = new.pop()
            if self.values is old and held.lent is self and not self._others:
                self.values = new
                held.step += self.steps
            else:
                self._land(old, new)
            self.off_steps -= 1
            held.runs += 1
            held.changes += self._changes
            return None if self._is_operation else self._read(flat.fetched(new, rest))
        except AssignedError as failed:
            raise landed(failed) from None
        finally:
            held.release()

    def foresee(self, off_steps: float) -> None:
        with self._held.lock:
            self.off_steps = off_steps if self._held.lent is self else 0

    def _take_given(self, feed_dict: Any) -> list[Any]:
        # Each step goes through this: a comprehension or a call for each value would show.
        given = []
        for key, convert in self._feeds:
            given.append(convert(feed_dict[key]))
        for op in self._inputs:
            opened = self._opened.opened.get(op)
            if opened is None:
                opened = self._opened.at(op)
            try:
                element = opened.draw()
                if len(op.outputs) == 1:
                    given.append(element)
                else:
                    given += outputs_of(op, element)
            except Exception as error:
                self._opened.error = error if op is self._inputs[0] else None
                note_draw(op, error)
                raise
        if self._counters:
            integer, counter = self._engine.integer, self._held.counter
            given += [integer(counter(variable)) for variable in self._counters]
        return given if self._places is None else [given[i] for i in self._places]

    def _run_by_variable(self, given: Sequence[Any]) -> Any:
        """Make the run as the first time, in which the engine may compile."""
        body, variables = self._body, self._held.by_variable
        results: Sequence[Any] = ()
        if body is not None:
            try:
                results = body(variables, given)
            except AssignedError as failed:
                variables.update(failed.new)
                self._count()
                raise
            # What is fetched follows behind the new values.
            variables.update(zip(self.assigned, results))  # noqa: B905
            self._flat = self._engine.flat_run(body, variables, given)
        self._count()
        self._held.runs += 1
        self._held.changes += self._changes
        return None if self._is_operation else self._read(results[len(self.assigned) :])

    def _count(self) -> None:
        variables = self._held.by_variable
        for counter, delta in self._increments:
            variables[counter] += delta

    def _land(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        """Put the new values in place after a run inside this run."""
        variables = self._held.by_variable
        if not self._engine.donates:
            check_unassigned(variables, self.assigned, old)
        variables.update(zip(self.assigned, new, strict=True))
        self._count()


def drawn(op: Operation, opened: OpenInput) -> tuple[Any, ...]:
    """Return the next element of an input, divided among the outputs of ``op``.

    Raises:
        OutOfRangeError: At its end.
        Exception: Whatever the source raises.
    """
    try:
        return outputs_of(op, opened.draw())
    except Exception as error:
        note_draw(op, error)
        raise


def note_draw(op: Operation, error: Exception) -> None:
    """Note on ``error`` that it came out of the input of ``op``.

    Raises:
        OutOfRangeError: If it is the StopIteration at the end of the input.
    """
    if isinstance(error, StopIteration):
        source: Source = op.args[0]
        passes = "" if source.epochs is None else f" (epochs={source.epochs})"
        message = f"the input {op.name!r} has no more elements{passes}"
        raise OutOfRangeError(None, op, message) from None
    add_note(error, f"in the input {op.name!r} of the graph")


def landed(failed: AssignedError) -> BaseException:
    """Return the error to raise after the new values of ``failed`` were put in place."""
    add_note(failed.error, LANDED.format("by what else was asked for"))
    return failed.error


Variables = dict[Variable, Any]


@dataclass(frozen=True)
class Executable:
    """One set of fetches and feeds, made ready to run. It holds nothing of any session.

    Attributes:
        variables: The variables that a session must have before it runs this.
        inputs: The inputs that it must have opened.
        changed: The variables that a run changes.
        bound: ``bound(fetches, values, inputs)`` returns the run of a session with these variables
            and inputs. It puts new values in place once everything has succeeded.
    """

    variables: frozenset[Variable]
    inputs: tuple[Operation, ...]
    changed: frozenset[Variable]
    bound: Callable[[Any, VariableValues, SessionInputs], PreparedRun]


def make_executable(graph: Graph, fetches: Any, feed_keys: tuple[Any, ...]) -> Executable:
    """Make ``fetches`` ready to run.

    Args:
        graph: The graph they belong to.
        fetches: As for ``Session.run``.
        feed_keys: The keys of the feed_dict as the caller writes them, in their order.

    Raises:
        ValueError, TypeError: As ``make_plan``.
    """
    plan = make_plan(graph, fetches, feed_keys)
    body = None if plan.body.is_empty else graph.compiled(plan.body)
    feeds = [(key, converter(t)) for key, t in zip(feed_keys, plan.feeds, strict=True)]
    make_run = BodyRun if is_only_body(plan) else PhasedRun
    changed = frozenset({*plan.body.assigned, *_assigned_on_host(plan)})
    return Executable(
        variables=frozenset({*changed, *plan.body.kept, *plan.counters}),
        inputs=plan.inputs,
        changed=changed,
        bound=lambda fetches, *held: make_run(fetches, feeds, plan, body, graph.engine, *held),
    )


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

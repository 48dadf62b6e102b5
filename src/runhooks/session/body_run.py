"""``BodyRun``: a run in which the host has nothing to do but to count, as a training step is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runhooks.engines.conform import check_unassigned
from runhooks.errors import OutOfRangeError, add_note
from runhooks.graph.engine import AssignedError, Compiled, Engine, FlatRun
from runhooks.graph.evaluate import outputs_of
from runhooks.graph.nest import reader
from runhooks.graph.plan import Plan
from runhooks.graph.source import OpenInput, Source
from runhooks.graph.tensor import Operation
from runhooks.session.feeds import Converter
from runhooks.session.inputs import SessionInputs
from runhooks.session.values import FlatValues, VariableValues

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

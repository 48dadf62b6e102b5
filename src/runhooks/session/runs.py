"""``PlannedRun``: a plan made ready to run; ``BoundRun``: its run in one session.

feeds, inputs, counters -> head (host) -> body (engine) -> tail (host) -> all variables at once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from runhooks.contract import PreparedRun
from runhooks.errors import OutOfRangeError, add_note
from runhooks.graph.engine import AssignedError, BoundBody, evaluate, outputs_of, ready
from runhooks.graph.graph import Graph
from runhooks.graph.nest import reader
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.passes import EndedByError
from runhooks.graph.plan import Plan, make_plan
from runhooks.graph.source import Source
from runhooks.graph.step_result import described
from runhooks.session.feeds import Converter, converter
from runhooks.session.inputs import SessionInputs
from runhooks.session.states import VariableValues

#: The keys of a feed_dict, each with a function that checks and converts the value.
Feeds = Sequence[tuple[Any, Converter]]

#: New values of variables on the host.
Counted = Mapping[Variable, Any]

_NOTHING_COUNTED: dict[Variable, Any] = {}


class BoundRun(PreparedRun):
    """The run of ``plan`` in one session: head, body and tail, of which some may be empty.

    Args:
        fetches: What is asked for.
        feeds: The keys of the feed_dict.
        plan: What to run.
        graph: The graph.
        held: The variables of the session, among them all that the run needs.
        inputs: Its inputs.
    """

    __slots__ = (
        *("_body", "_changes", "_counter", "_counters", "_cuts", "_delta", "_engine", "_feeds"),
        *("_head", "_held", "_increments", "_inputs", "_is_given", "_is_operation", "_is_phased"),
        *(
            "_opened",
            "_places",
            "_plan",
            "_read",
            "_read_span",
            "_read_spans",
            "_sources",
            "_span",
            "_tail",
        ),
    )

    def __init__(
        self,
        fetches: Any,
        feeds: Feeds,
        plan: Plan,
        graph: Graph,
        held: VariableValues,
        inputs: SessionInputs,
    ) -> None:
        self._is_phased = not _only_counts(plan)
        counts = () if self._is_phased else plan.head
        increments: Counter[Variable] = Counter()  # a run may count one twice
        for op in counts:
            if op.assigns is not None:
                increments[op.assigns] += op.args[0]
        self._increments = list(increments.items())
        is_one = len(increments) == 1
        self._counter: Variable | None
        self._counter, self._delta = self._increments[0] if is_one else (None, 0)
        steps = sum(delta for counter, delta in self._increments if counter is held.step_variable)
        super().__init__(fetches, (key for key, _ in feeds), steps)
        self._plan = plan
        self._head, self._tail = ready(plan.head), ready(plan.tail)
        self._engine = graph.engine
        self._held = held
        self._opened = inputs
        self._feeds = feeds
        self._inputs = plan.inputs
        self._counters = () if self._is_phased else plan.counters
        self._sources = [*plan.feeds, *(t for op in plan.inputs for t in op.outputs)]
        known = [*self._sources, *plan.counters]
        places = [known.index(tensor) for tensor in plan.body.given if tensor in known]
        is_all = self._is_phased or places == list(range(len(known)))
        self._places = None if is_all else places
        self._is_given = bool(known)
        is_empty = plan.body.is_empty
        self._body = BoundBody(_nothing) if is_empty else graph.bind(plan.body, held.structures)
        assigned = [held.places[variable] for variable in plan.body.assigned]
        kept = [held.places[variable] for variable in plan.body.kept]
        spans = _joined([*assigned, *kept])
        self._read_span = spans[0] if len(spans) == 1 else None
        self._read_spans = spans
        spans = _joined(assigned)
        start = min(it.start for it in spans)
        self._span = slice(start, max(it.stop for it in spans))
        cuts = [slice(it.start - start, it.stop - start) for it in spans]
        self._cuts = cuts if len(cuts) > 1 else ()
        self._changes = bool(plan.body.assigned or list(_assigned_on_host(plan)))
        self._is_operation = plan.result is None
        place = {tensor: i for i, tensor in enumerate(plan.body.fetches)}
        self._read: Callable[[Any], Any] = (
            reader(plan.result) if self._is_phased else reader(plan.result, key=place.__getitem__)
        )

    def again(self, feed_dict: Any) -> Any:
        """Make the run, and return the values of the fetches. An off-step is as fast as this is."""
        held, body = self._held, self._body
        with held.lock:
            try:
                given = self._taken(feed_dict) if self._is_given else []
                values, counted = None, _NOTHING_COUNTED
                if self._is_phased:
                    given, values, counted = self._compute_head(given)
                if held.last is not self:  # only now: the source of an input may look at variables
                    held.make_last(self)
                args = held.parts[self._read_span] if self._read_span else self._read_parts()
                args += given
                changes = held.changes
                try:
                    new = body.step(*args)
                except Exception as error:
                    self._explain(error, args, counted)
                    raise
                if (
                    held.last is not self  # nor has a run inside this run changed anything
                    or held.changes != changes
                    or body.compilation.since is not None
                ):
                    self._note_unusual(args, changes)
                rest = new.pop()
                if values is not None:
                    self._compute_tail(new, rest, values, counted)
                self.off_steps -= 1
                held.changes += self._changes
                if self._counter is None:
                    self._land(new, counted)
                else:  # most runs make one step: as ``_land`` does, without the call
                    if self._cuts:
                        new = self._with_those_between(new)
                    count = held.counters[self._counter] + self._delta
                    held.parts[self._span] = new
                    held.counters[self._counter] = count
                held.runs += 1
                if self._is_operation:
                    return None
                return self._read(self._fetched(new, rest) if values is None else values)
            except BaseException:
                self.off_steps = 0  # what it has drawn is gone, and may have ended an epoch
                raise

    def foresee(self, off_steps: float) -> None:
        with self._held.lock:
            is_last = self._held.last is self and not self._is_phased
            self.off_steps = off_steps if is_last else 0

    def _explain(self, error: Exception, args: Sequence[Any], counted: Counted) -> None:
        """Note what is known about an error out of the body's step, or raise a clearer one."""
        if not isinstance(error, AssignedError):
            self._body.explain(error, args)
            with suppress(Exception):  # the error matters more than the note
                self._note_given(error, args)
            return
        held = self._held
        held.update_parts(error.new)
        held.counters.update((it, held.counters[it] + delta) for it, delta in self._increments)
        held.counters.update((it, int(value)) for it, value in counted.items())
        _note_landed(error.error, "by what else was asked for")
        raise error.error from None

    def _note_given(self, error: Exception, args: Sequence[Any]) -> None:
        """Note on ``error`` the forms of what the run was fed and has drawn."""
        given = self._plan.body.given
        forms = {
            tensor: described(self._engine, value)
            for tensor, value in zip(reversed(given), reversed(args), strict=False)
        }
        fed = [f"{it.op.name!r}: {forms[it]}" for it in self._plan.feeds if it in forms]
        if fed:
            add_note(error, f"the run was fed {', '.join(fed)}")
        for op in self._inputs:
            drawn = [forms[it] for it in op.outputs if it in forms and it not in self._plan.feeds]
            if drawn and op.type == "Inputs":
                add_note(error, f"the run has drawn {', '.join(drawn)} from {op.name!r}")

    def _note_unusual(self, args: Sequence[Any], changes: int) -> None:
        if self._body.compilation.since is not None:
            self._body.log()
        if self._held.last is not self or self._held.changes != changes:
            self._check_inside(args)

    def _fetched(self, new: list[Any], rest: Any) -> Sequence[Any]:
        try:
            return self._body.fetched(new, rest)
        except BaseException as error:
            _note_landed(error, "by what else was asked for")
            raise

    def _check_inside(self, before: Sequence[Any]) -> None:
        """Check what a run inside this run has done.

        Raises:
            RuntimeError: If the session is closed, or if it has assigned what this run assigns too.
        """
        held, start = self._held, 0
        held.make_last(self)
        if self._engine.donates:
            return
        for variable in self._plan.body.assigned:
            now = held.parts[held.places[variable]]
            end = start + len(now)
            if any(new is not old for new, old in zip(now, before[start:end], strict=True)):
                raise RuntimeError(
                    f"variable {variable.op.name!r} was assigned by a run inside this run, which "
                    "assigns it too: make the inner run a part of the graph"
                )
            start = end

    def _taken(self, feed_dict: Any) -> list[Any]:
        """Return what is fed and drawn, in the order of ``_sources``.

        If the host computes nothing of it, return what the body is given.
        """
        # Each step goes through this: a comprehension or a call for each value would show.
        taken: list[Any] = []
        for key, convert in self._feeds:
            taken.append(convert(feed_dict[key]))
        for op in self._inputs:
            opened = self._opened.opened.get(op)
            if opened is None:
                opened = self._opened.at(op)
            try:
                element = opened.draw()
                if len(op.outputs) == 1:
                    taken.append(element)
                else:
                    taken += outputs_of(op, element)
            except Exception as error:
                self._opened.error = error if op is self._inputs[0] else None
                _note_draw(op, error)
                raise
        if self._counters:
            integer, counters = self._engine.integer, self._held.counters
            taken += [integer(counters[variable]) for variable in self._counters]
        return taken if self._places is None else [taken[i] for i in self._places]

    def _compute_head(
        self, taken: Sequence[Any]
    ) -> tuple[list[Any], dict[Tensor, Any], dict[Variable, Any]]:
        """Return what the body is given, all values known by now, and new ones on the host."""
        held, plan, integer = self._held, self._plan, self._engine.integer
        values: dict[Tensor, Any] = {}
        for tensor, value in zip(self._sources, taken, strict=True):
            values.setdefault(tensor, value)  # what is fed comes before what is drawn
        held.check_open()
        values.update((counter, np.int64(held.counters[counter])) for counter in plan.counters)
        counted = evaluate(self._head, _conform, values, held.counters)
        given = [values[tensor] for tensor in plan.body.given]
        given = [integer(int(it)) if type(it) is np.int64 else it for it in given]
        return given, values, counted

    def _compute_tail(
        self,
        new: list[Any],
        rest: Any,
        values: dict[Tensor, Any],
        counted: dict[Variable, Any],
    ) -> None:
        """Add the values of the body and those behind it to ``values``; to ``counted``, too."""
        held, plan = self._held, self._plan
        try:
            values.update(zip(plan.body.fetches, self._body.fetched(new, rest), strict=True))
            before = {**held.counters, **counted}
            counted |= evaluate(self._tail, _conform, values, before)
        except BaseException as error:
            if new and plan.body.donate and self._engine.donates:
                self._land(new, counted)  # the old values are gone
                _note_landed(error, "on the host")
            raise
        held.check_open()

    def _land(self, new: list[Any], counted: Counted) -> None:
        """Give the variables their new values: all or, if a signal raises an error, none.

        Args:
            new: The parts of those that the body assigns.
            counted: The values of those that the host assigns, but for ``_increments``.
        """
        counters = self._held.counters
        if self._cuts:
            new = self._with_those_between(new)
        landing = {it: int(value) for it, value in counted.items()}
        landing.update((it, counters[it] + delta) for it, delta in self._increments)
        # Signals are handled after a call or a jump, and there is none between these two.
        self._held.parts[self._span] = new
        counters |= landing

    def _read_parts(self) -> list[Any]:
        parts = self._held.parts
        return [part for span in self._read_spans for part in parts[span]]

    def _with_those_between(self, new: list[Any]) -> list[Any]:
        """Return the parts in ``_span``, given new values of those in ``_cuts``."""
        parts, start = self._held.parts[self._span], 0
        for cut in self._cuts:
            end = start + cut.stop - cut.start
            parts[cut] = new[start:end]
            start = end
        return parts


def _nothing(*args: Any) -> list[Any]:
    return [()]


def _joined(spans: Sequence[slice]) -> list[slice]:
    """Return ``spans`` with those that follow each other made one."""
    joined: list[slice] = []
    for span in spans:
        if joined and joined[-1].stop == span.start:
            joined[-1] = slice(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return joined or [slice(0, 0)]


def _only_counts(plan: Plan) -> bool:
    """Return whether the host has nothing to do in ``plan`` but to count."""
    counted = {t for op in plan.head for t in op.outputs}
    return (
        all(op.type == "AssignAdd" and type(op.args[0]) is int for op in plan.head)
        and plan.fetches <= set(plan.body.fetches)
        and counted.isdisjoint(plan.body.given)
        and not plan.tail
    )


def _note_landed(error: BaseException, where: str) -> None:
    """Note on ``error`` that variables have their new values, though it was raised ``where``."""
    add_note(
        error,
        "the variables have their new values all the same: the device had given up the old ones "
        f"when this was raised {where}",
    )


def _note_draw(op: Operation, error: Exception) -> None:
    """Note on ``error`` that it came out of the input of ``op``.

    Raises:
        OutOfRangeError: If it is the StopIteration at the end of the input.
    """
    if isinstance(error, StopIteration):
        source: Source = op.args[0]
        is_counted = source.has_epochs and source.epochs is not None
        passes = f" (epochs={source.epochs})" if is_counted else ""
        why = str(error) if isinstance(error, EndedByError) else f"has no more elements{passes}"
        raise OutOfRangeError(None, op, f"the input {op.name!r} {why}") from None
    add_note(error, f"in the input {op.name!r} of the graph")


class PlannedRun:
    """One set of fetches and feeds, made ready to run. It holds nothing of any session.

    Args:
        graph: The graph they belong to.
        fetches: As for ``Session.run``.
        feed_keys: The keys of the feed_dict as the caller writes them, in their order.

    Raises:
        ValueError, TypeError: As ``make_plan``.

    Attributes:
        inputs: The inputs that it must have opened.
        changed: The variables that a run changes.
        variables: The variables that a session must have before it runs this, in the order of the
            graph.
    """

    def __init__(self, graph: Graph, fetches: Any, feed_keys: tuple[Any, ...]) -> None:
        self._graph = graph
        self._plan = plan = make_plan(graph, fetches, feed_keys)
        fed, put = zip(feed_keys, plan.feeds, strict=True), graph.engine.put
        self._feeds = [(key, converter(tensor, put)) for key, tensor in fed]
        self.inputs = plan.inputs
        self.changed = {*plan.body.assigned, *_assigned_on_host(plan)}
        needed = {*self.changed, *plan.body.kept, *plan.counters}
        self.variables = sorted(needed, key=lambda variable: variable.op.number)

    def bound(self, fetches: Any, values: VariableValues, inputs: SessionInputs) -> BoundRun:
        """Return its run in the session with these variables and inputs."""
        return BoundRun(fetches, self._feeds, self._plan, self._graph, values, inputs)


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

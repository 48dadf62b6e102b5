"""``PlannedRun``: a plan made ready; ``BoundRun``: its run in one session; checks of feeds.

feeds, inputs, counters -> head (host) -> body (engine) -> tail (host) -> all variables at once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

import numpy as np

from runhooks.arrays.registry import NO_LIBRARY, NUMPY, library_of
from runhooks.contract import PreparedRun
from runhooks.errors import OutOfRangeError, add_note
from runhooks.graph.base import Framework
from runhooks.graph.engine import AssignedError, BoundBody, evaluate, outputs_of, ready
from runhooks.graph.graph import Graph
from runhooks.graph.nest import reader
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.passes import EndedByError
from runhooks.graph.plan import Plan, make_plan
from runhooks.graph.sources import Source
from runhooks.graph.step_result import described
from runhooks.session.states import SessionInputs, VariableValues

_NOTHING_COUNTED: dict[Variable, Any] = {}


class BoundRun(PreparedRun):
    __slots__ = (
        *("_body", "_changes", "_counter", "_counters", "_cuts", "_delta", "_engine", "_feeds"),
        *("_head", "_held", "_increments", "_inputs", "_is_given", "_is_operation", "_is_phased"),
        *("_opened", "_places", "_plan", "_read", "_read_span", "_read_spans", "_sources"),
        *("_span", "_tail"),
    )

    def __init__(
        self, fetches: Any, planned: PlannedRun, held: VariableValues, inputs: SessionInputs
    ) -> None:
        plan, graph = planned.plan, planned.graph
        self._is_phased = not _only_counts(plan)
        counts = () if self._is_phased else plan.head
        increments: Counter[Variable] = Counter()  # a run may count one twice
        for op in counts:
            if op.assigns is not None:
                increments[op.assigns] += op.args[0]
        self._increments = list(increments.items())
        self._counter: Variable | None = None
        if len(increments) == 1:
            self._counter, self._delta = self._increments[0]
        steps = sum(delta for counter, delta in self._increments if counter is held.step_variable)
        super().__init__(fetches, (key for key, _ in planned.feeds), steps)
        self._plan = plan
        self._head, self._tail = ready(plan.head), ready(plan.tail)
        self._engine = graph.engine
        self._held = held
        self._opened = inputs
        self._feeds = planned.feeds
        self._inputs = plan.inputs
        self._counters = () if self._is_phased else plan.counters
        self._sources = [*plan.feeds, *(t for op in plan.inputs for t in op.outputs)]
        known = [*self._sources, *plan.counters]
        places = [known.index(tensor) for tensor in plan.body.given if tensor in known]
        is_all = self._is_phased or places == list(range(len(known)))
        self._places = None if is_all else places
        self._is_given = bool(known)
        self._body = (
            BoundBody(_nothing)
            if plan.body.is_empty
            else self._engine.bind(plan.body, held.structures, graph.shared_by_runs)
        )
        assigned = [held.places[variable] for variable in plan.body.assigned]
        kept = [held.places[variable] for variable in plan.body.kept]
        self._read_spans = spans = _joined([*assigned, *kept])
        self._read_span = spans[0] if len(spans) == 1 else None
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
        held, body = self._held, self._body
        with held.lock:
            try:
                given = self._taken(feed_dict) if self._is_given else []
                values, counted = None, _NOTHING_COUNTED
                if self._is_phased:
                    given, values, counted = self._compute_head(given)
                if held.last is not self:  # an input may have read variables
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
                    held.last is not self  # a run inside this run changed it
                    or held.changes != changes
                    or body.compilation.since is not None
                ):
                    self._check_inside(args, changes)
                rest = new.pop()
                if values is not None:
                    self._compute_tail(new, rest, values, counted)
                self.off_steps -= 1
                held.changes += self._changes
                if self._counter is None:
                    self._land(new, counted)
                else:  # as ``_land``, without the call
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
                self.off_steps = 0  # an epoch may have ended
                raise

    def foresee(self, off_steps: float) -> None:
        with self._held.lock:
            is_last = self._held.last is self and not self._is_phased
            self.off_steps = off_steps if is_last else 0

    def _explain(self, error: Exception, args: Sequence[Any], counted: dict[Variable, Any]) -> None:
        if not isinstance(error, AssignedError):
            self._body.explain(error, args)
            with suppress(Exception):  # the error matters more than the note
                self._note_given(error, args)
            return
        held = self._held
        for variable, new in error.new.items():
            held.parts[held.places[variable]] = new
        held.counters |= self._counts(counted)
        _note_landed(error.error)
        raise error.error from None

    def _note_given(self, error: Exception, args: Sequence[Any]) -> None:
        given = self._plan.body.given
        forms = {
            tensor: described(self._engine, value)
            for tensor, value in zip(reversed(given), reversed(args), strict=False)
        }
        if fed := [f"{it.op.name!r}: {forms[it]}" for it in self._plan.feeds if it in forms]:
            add_note(error, f"the run was fed {', '.join(fed)}")
        for op in self._inputs:
            drawn = [forms[it] for it in op.outputs if it in forms and it not in self._plan.feeds]
            if drawn and op.type == "Inputs":
                add_note(error, f"the run has drawn {', '.join(drawn)} from {op.name!r}")

    def _fetched(self, new: list[Any], rest: Any) -> Sequence[Any]:
        try:
            return self._body.fetched(new, rest)
        except BaseException as error:
            _note_landed(error)
            raise

    def _check_inside(self, before: Sequence[Any], changes: int) -> None:
        """Log a compilation; check what a run inside this run has done."""
        held, start = self._held, 0
        if self._body.compilation.since is not None:
            self._body.log()
        if held.last is self and held.changes == changes:
            return
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
        """Return what is fed and drawn, in the order of ``_sources``, or what the body is given."""
        # Comprehensions or calls would show in each step.
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
        """Return what the body is given, all values, and new ones on the host."""
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
        """Add to ``values`` and ``counted``."""
        held, plan = self._held, self._plan
        try:
            values.update(zip(plan.body.fetches, self._body.fetched(new, rest), strict=True))
            before = {**held.counters, **counted}
            counted |= evaluate(self._tail, _conform, values, before)
        except BaseException as error:
            if new and plan.body.donate and self._engine.donates:
                self._land(new, counted)  # the old values are gone
                _note_landed(error)
            raise
        held.check_open()

    def _land(self, new: list[Any], counted: dict[Variable, Any]) -> None:
        """Give the variables their new values: all or, if a signal raises an error, none."""
        held = self._held
        if self._cuts:
            new = self._with_those_between(new)
        counts = self._counts(counted)
        # Signals are handled after a call or a jump: there is none between these two.
        held.parts[self._span] = new
        held.counters |= counts

    def _counts(self, counted: dict[Variable, Any]) -> dict[Variable, int]:
        counts = {it: int(value) for it, value in counted.items()}
        for counter, delta in self._increments:
            counts[counter] = self._held.counters[counter] + delta
        return counts

    def _read_parts(self) -> list[Any]:
        return [part for span in self._read_spans for part in self._held.parts[span]]

    def _with_those_between(self, new: list[Any]) -> list[Any]:
        """Return the parts in ``_span``, with ``new`` in ``_cuts``."""
        parts, start = self._held.parts[self._span], 0
        for cut in self._cuts:
            end = start + cut.stop - cut.start
            parts[cut] = new[start:end]
            start = end
        return parts


def _nothing(*args: Any) -> list[Any]:
    return [()]


def _joined(spans: Sequence[slice]) -> list[slice]:
    joined: list[slice] = []
    for span in spans:
        if joined and joined[-1].stop == span.start:
            joined[-1] = slice(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return joined or [slice(0, 0)]


def _only_counts(plan: Plan) -> bool:
    counted = {t for op in plan.head for t in op.outputs}
    return (
        all(op.type == "AssignAdd" and type(op.args[0]) is int for op in plan.head)
        and plan.fetches <= set(plan.body.fetches)
        and counted.isdisjoint(plan.body.given)
        and not plan.tail
    )


def _note_landed(error: BaseException) -> None:
    add_note(
        error,
        "the variables have their new values all the same: the device had given up the old ones",
    )


def _note_draw(op: Operation, error: Exception) -> None:
    """Note on ``error`` that it came out of an input; raise OutOfRangeError at its end."""
    if isinstance(error, StopIteration):
        source: Source = op.args[0]
        is_counted = source.has_epochs and source.epochs is not None
        passes = f" (epochs={source.epochs})" if is_counted else ""
        why = str(error) if isinstance(error, EndedByError) else f"has no more elements{passes}"
        raise OutOfRangeError(None, op, f"the input {op.name!r} {why}") from None
    add_note(error, f"in the input {op.name!r} of the graph")


class PlannedRun:
    """Fetches and feeds, ready to run in sessions that have its ``variables``."""

    def __init__(self, graph: Graph, fetches: Any, feed_keys: tuple[Any, ...]) -> None:
        self.graph = graph
        self.plan = plan = make_plan(graph, fetches, feed_keys)
        fed, put = zip(feed_keys, plan.feeds, strict=True), graph.engine.put
        self.feeds = [(key, converter(tensor, put)) for key, tensor in fed]
        self.changed = {*plan.body.assigned, *_assigned_on_host(plan)}
        needed = {*self.changed, *plan.body.kept, *plan.counters}
        self.variables = sorted(needed, key=lambda variable: variable.op.number)


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


Converter = Callable[[Any], Any]
Shape = tuple[int | None, ...] | None

_ARRAYS = (np.ndarray, np.generic)


def check_arguments(engine: Framework, feed_dict: Any, options: Any, run_metadata: Any) -> None:
    if type(feed_dict) not in (dict, NoneType) and not isinstance(feed_dict, Mapping):
        raise TypeError(
            f"feed_dict must map tensors to values, got {feed_dict!r}; "
            "to fetch several tensors, give them as one list"
        )
    if options is not None or run_metadata is not None:
        raise ValueError(
            f"the {engine.name} engine has neither run options nor run metadata: "
            "options and run_metadata must be None"
        )


def converter(tensor: Tensor, put: Converter | None = None) -> Converter:
    """Return what converts a value to feed, and names the tensor in errors.

    A list becomes an array; floats do not become integers. What is fed to a variable is not
    ``put``.
    """
    if isinstance(tensor, Variable) and tensor.on_host:
        return lambda value: _array(tensor, value, np.dtype(np.int64), ())[()]
    is_placeholder = tensor.op.type in ("Placeholder", "PlaceholderWithDefault")
    dtype, shape = tensor.op.args if is_placeholder else (None, None)
    is_any = dtype is None and shape is None
    kind: Any = None  # of what was fed as it is, like the next two
    its_dtype: Any = None
    its_shape: Any = None

    def convert(value: Any) -> Any:
        nonlocal kind, its_dtype, its_shape
        if value.__class__ is kind and (
            is_any or (value.dtype == its_dtype and value.shape == its_shape)
        ):
            return value
        converted = _any_value(tensor, value) if is_any else _array(tensor, value, dtype, shape)
        # A list may have arrays, and the next one only numbers.
        if converted is value and (
            type(value) is not list if is_any else isinstance(value, _ARRAYS)
        ):
            kind = value.__class__
            if not is_any:
                its_dtype, its_shape = value.dtype, value.shape
        return converted

    if put is None or isinstance(tensor, Variable):
        return convert
    return lambda value: put(convert(value))


def _any_value(tensor: Tensor, value: Any) -> Any:
    if value.__class__ is list:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"feed_dict: {tensor.name!r} must be fed an array: {error}") from None
        return value if array.dtype.hasobject else array
    if value is None or isinstance(value, Tensor | Operation):
        raise TypeError(f"feed_dict: {tensor.name!r} must be fed a value, got {value!r}")
    if isinstance(tensor, Variable) and isinstance(value, bool | int | float | complex):
        return np.asarray(value)
    return value


def _array(tensor: Tensor, value: Any, dtype: np.dtype[Any] | None, shape: Shape) -> Any:
    """An array of another library stays where it is unless it must be converted."""
    value = _any_value(tensor, value)
    if not isinstance(value, _ARRAYS) and (library := library_of(value)) not in (NUMPY, NO_LIBRARY):
        its_shape, its_dtype = library.host_form(value)
        _check_shape(tensor, its_shape, shape)
        if dtype is None or its_dtype == dtype:
            return value
        _check_cast(tensor, its_dtype, dtype)
        if hasattr(value, "astype"):
            return value.astype(dtype)
        return library.from_numpy(_cast(tensor, library.to_numpy(value), dtype), value)
    array: Any = value if isinstance(value, _ARRAYS) else np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(
            f"feed_dict: {tensor.name!r} must be fed an array, got {type(value).__name__}"
        )
    _check_shape(tensor, array.shape, shape)
    return array if dtype is None or array.dtype == dtype else _cast(tensor, array, dtype)


def _check_shape(tensor: Tensor, got: tuple[int, ...], shape: Shape) -> None:
    if shape is not None and not (
        len(got) == len(shape)
        and all(want is None or want == size for size, want in zip(got, shape, strict=True))
    ):
        raise ValueError(
            f"feed_dict: {tensor.name!r} must have the shape {_text(shape)}, got {_text(got)}"
        )


def _cast(tensor: Tensor, array: Any, dtype: np.dtype[Any]) -> Any:
    _check_cast(tensor, array.dtype, dtype)
    cast = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(cast, array):
        raise ValueError(f"feed_dict: {tensor.name!r} is {dtype}, which cannot hold all of {array}")
    return cast


def _check_cast(tensor: Tensor, dtype: Any, into: np.dtype[Any]) -> None:
    if into.kind == "V":  # bfloat16 and its like, which NumPy casts but has no kind for
        may_cast = dtype.kind in "fV"
    elif into.kind in "iu" and dtype.kind in "iu":  # the values decide
        may_cast = True
    else:
        try:
            may_cast = np.can_cast(dtype, into, "same_kind")
        except TypeError:
            may_cast = False
    if not may_cast:
        raise TypeError(
            f"feed_dict: {tensor.name!r} must have the dtype {into}, got {dtype}: convert it "
            "before feeding it"
        )


def _text(shape: tuple[int | None, ...]) -> str:
    return str(["any" if size is None else size for size in shape]).replace("'", "")

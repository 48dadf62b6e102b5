"""``Graph``: the operations of a computation, their names, collections and engine."""

from __future__ import annotations

import operator
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from typing import Any

from runhooks.graph import nest
from runhooks.graph.base import (
    UNKNOWN,
    BaseGraph,
    GraphKeys,
    RunEffects,
    StepPart,
    entered,
    find_default_graph_with,
    get_default_graph,
)
from runhooks.graph.build import get_global_step, set_steps_per_epoch
from runhooks.graph.engine import BoundedCache, Engine, Kept, load_engine, note_operation
from runhooks.graph.generators import called_ahead, generators_left_alone
from runhooks.graph.nodes import (
    CAPTURES,
    LATEST,
    Effect,
    InitialFrom,
    Operation,
    Part,
    Placement,
    Tensor,
    Variable,
    check_name,
)
from runhooks.graph.plan import elements_of, make_plan, needed_for
from runhooks.graph.sources import EPOCH, epoch_operation
from runhooks.near_names import suggestion


class _UniqueNames:
    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        # Names differ by more than case: tags become file and folder names.
        candidate, key = name, name.lower()
        while candidate.lower() in self._next:
            candidate = f"{name}_{self._next[key]}"
            self._next[key] += 1
        self._next[candidate.lower()] = 1
        return candidate


def step_not_named(
    graph: BaseGraph, fetches: Any, feed_keys: Iterable[Any]
) -> tuple[Operation, Operation] | None:
    """Return a step that ``fetches`` make only by an output of it, and that output."""
    needed = needed_for(graph, fetches, feed_keys)
    steps = {op for op in needed if op.effect is Effect.STEP}
    if not steps:
        return None
    elements = elements_of(graph, fetches)
    named = [e for e in elements if isinstance(e, Operation) or e.op.effect is Effect.STEP]
    steps -= graph.effects_of(named, feed_keys).steps
    outputs = [op for op in needed if op.effect is Effect.STEP_OUTPUT and op.inputs[0].op in steps]
    if not outputs:
        return None
    step = outputs[0].inputs[0].op
    # What programs know as the step is a group of it and of what stores its states.
    groups = (it for it in graph.get_operations() if not it.outputs and step in it.control_inputs)
    return next(groups, step), outputs[0]


class Graph(BaseGraph):
    """A deferred graph: you add operations, and the runs of a session compute them.

    Args:
        engine: ``"python"`` (NumPy, or any callable), ``"jax"``, ``"torch"``, or an ``Engine`` of
            your own.
        steps_per_epoch: As for ``rh.inputs``.

    Raises:
        ValueError: If no engine has that name, or ``steps_per_epoch`` is below 1.
        TypeError: If ``engine`` is neither a name nor an ``Engine``.
        ImportError: If its framework is not installed.
    """

    def __init__(
        self, engine: str | Engine = "python", *, steps_per_epoch: int | None = None
    ) -> None:
        self._engine = load_engine(engine) if isinstance(engine, str) else engine
        if not isinstance(self._engine, Engine):
            raise TypeError(f"engine must be the name of an engine or an Engine, got {engine!r}")
        self.planned_runs: BoundedCache[Any, Any] = BoundedCache()
        # What its engine shares between runs.
        self.shared_by_runs: BoundedCache[Any, Any] = BoundedCache()
        #: What is added once, though the hooks of each session ask for it.
        self.added: Kept[Any, Any] = Kept()
        self._operations: dict[str, Operation] = {}
        self._forms: dict[Tensor, Any] = {}
        self._collections: dict[str, list[Any]] = {}
        self._names = _UniqueNames()
        self._tags = _UniqueNames()
        self.scope = ""
        self._finalized = False
        self._epoch: Operation | None = None
        set_steps_per_epoch(self, steps_per_epoch)

    def __repr__(self) -> str:
        return f"<Graph engine={self.engine.name!r} operations={len(self._operations)}>"

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make this the default graph of the thread inside the ``with`` block."""
        with entered(self):
            yield self

    @property
    def engine(self) -> Engine:
        """The engine that computes it."""
        return self._engine

    def add(
        self,
        kind: str,
        fn: Callable[..., Any] | None,
        args: tuple[Any, ...] = (),
        *,
        name: str,
        num_outputs: int = 1,
        placement: Placement = Placement.ENGINE,
        assigns: Variable | None = None,
        control_inputs: Iterable[Operation] = (),
        effect: Effect = Effect.NONE,
    ) -> Operation:
        """Add an ``Operation`` that computes ``fn(*args)``; tensors stand for their values.

        ``name`` is put under the current name scope and made unique. ``fn`` returns ``num_outputs``
        values. ``control_inputs`` are run whenever this operation is. Raises RuntimeError if the
        graph is finalized, ValueError for a tensor of another graph.
        """
        if self._finalized:
            raise RuntimeError(
                f"the graph is finalized (adding {name!r}): build it before the session, or in a "
                "hook's begin()"
            )
        inputs, controls = nest.tensors(args), tuple(control_inputs)
        parts: tuple[Tensor | Operation, ...] = (*inputs, *controls)
        for part in parts:
            self._check_own(part)
        op = Operation(
            self,
            kind,
            self.unique_name(name),
            len(self._operations),
            fn=fn,
            args=args,
            inputs=inputs,
            read_args=nest.args_reader(args),
            control_inputs=controls,
            num_outputs=num_outputs,
            placement=placement,
            assigns=assigns,
            effect=effect,
        )
        self._operations[op.name] = op
        return op

    def add_assignment(self, variable: Variable, kind: str, value: Any, name: str | None) -> Tensor:
        of = variable.op
        add = operator.add if variable.on_host else partial(self._engine.add, of.name)
        op = self.add(
            kind,
            _latest if kind == "Assign" else add,
            (value,),
            name=name or f"{of.name}/{kind}",
            placement=of.placement,
            assigns=variable,
        )
        return op.outputs[0]

    def finalize(self) -> None:
        self._finalized = True

    def reopen(self) -> None:
        self._finalized = False

    @property
    def finalized(self) -> bool:
        return self._finalized

    @contextmanager
    def name_scope(self, name: str) -> Iterator[str]:
        """Prefix the names of what is added inside the ``with`` block with ``name + "/"``."""
        outer = self.scope
        self.scope = f"{self.unique_name(name)}/"
        try:
            yield self.scope
        finally:
            self.scope = outer

    def has_operation(self, name: str) -> bool:
        """Return whether there is an operation of that full name."""
        return name in self._operations

    def unique_name(self, name: str) -> str:
        """Return ``name`` under the current scope, with ``_1``, ``_2`` added if it is taken."""
        return self._names.unique(self.scope + check_name(name))

    def unique_tag(self, name: str) -> str:
        """As ``unique_name``, but unique among the tags of summaries."""
        return self._tags.unique(self.scope + check_name(name))

    def get_operations(self) -> list[Operation]:
        """Return all operations, in the order in which they were added."""
        return list(self._operations.values())

    def get_operation_by_name(self, name: str) -> Operation:
        """Return the operation of that name; raise KeyError if there is none."""
        try:
            return self._operations[name]
        except KeyError:
            raise KeyError(self._unknown("operation", name)) from None

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Return the tensor of that name, such as ``"loss:0"``; raise KeyError if there is none."""
        operation, _, index = name.rpartition(":")
        op = self._operations.get(operation)
        if op is None or not index.isdecimal() or int(index) >= len(op.outputs):
            raise KeyError(self._unknown("tensor", name))
        return op.outputs[int(index)]

    def as_graph_element(self, element: Any) -> Tensor | Operation:
        """Return the tensor or operation that ``element`` is or names.

        Raises:
            ValueError: For an unknown name, and for an element of another graph.
            TypeError: For anything else.
        """
        if isinstance(element, str):
            find = self.get_tensor_by_name if ":" in element else self.get_operation_by_name
            try:
                return find(element)
            except KeyError as error:
                if element.removesuffix(":0") == EPOCH and (epoch := self.epoch) is not None:
                    return epoch
                raise ValueError(error.args[0]) from None
        if isinstance(element, Tensor | Operation):
            self._check_own(element)
            return element
        raise TypeError(f"not a tensor, operation, variable or name: {element!r}")

    @property
    def epoch(self) -> Tensor | None:
        """The number of the epoch, from 1; None: nothing says when one ends."""
        if self._epoch is None:
            self._epoch = epoch_operation(self)
        return None if self._epoch is None else self._epoch.outputs[0]

    def object_named(self, name: str) -> Any:
        """Return the object of that name that steps change in place, or None."""
        return None

    def for_evaluation(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``fn`` as an evaluation calls it: it does not train."""
        return fn

    def add_to_collection(self, key: str, value: Any) -> None:
        """Add ``value`` to the collection ``key``; raise RuntimeError if the graph is finalized."""
        if self._finalized:
            raise RuntimeError(f"the graph is finalized (adding to its collection {key!r})")
        self._collections.setdefault(key, []).append(value)

    def get_collection(self, key: str) -> list[Any]:
        """Return a copy of the collection ``key``; empty if there is none."""
        return list(self._collections.get(key, ()))

    def get_collection_ref(self, key: str) -> list[Any]:
        """Return the collection ``key`` itself."""
        return self._collections.setdefault(key, [])

    def form_of(self, tensor: Tensor) -> Any:
        if tensor not in self._forms:
            form = self._form(tensor.op)
            if form is UNKNOWN:  # it may be noted later
                return UNKNOWN
            several = len(tensor.op.outputs) > 1
            for output in tensor.op.outputs:
                self._forms[output] = form[output.index] if several else form
        return self._forms[tensor]

    def note_form(self, tensor: Tensor, form: Any) -> None:
        """Note the form of a placeholder, an input or a variable."""
        self._forms[tensor] = form

    def _form(self, op: Operation) -> Any:
        if not self._engine.finds_forms:
            return UNKNOWN
        if op.assigns is not None:
            return self.form_of(op.assigns)
        if isinstance(op.outputs[0], Variable):
            return self._initial_form(op.outputs[0])
        if op.fn is None or op.placement is Placement.HOST:
            return UNKNOWN
        forms = {tensor: self.form_of(tensor) for tensor in op.inputs}
        if any(form is UNKNOWN for form in forms.values()):
            return UNKNOWN
        fn = op.fn
        if isinstance(fn, Part):
            with suppress(Exception):  # a part of an array has to be computed
                return fn(*op.read_args(forms))
        try:
            with generators_left_alone():  # the run that traces it draws as the user's own would
                return self._engine.form(
                    lambda *args: fn(*op.read_args(dict(zip(forms, args, strict=True)))),
                    *forms.values(),
                )
        except Exception as error:
            note_operation(error, op)
            raise

    def _initial_form(self, variable: Variable) -> Any:
        if variable.on_host:
            return self._engine.form(lambda: self._engine.integer(0))
        initial = variable.initial_value
        if isinstance(initial, InitialFrom):
            return self._engine.form(initial.fn, self.form_of(initial.variable))
        if callable(initial) and self._engine.is_leaf(initial):
            initial = called_ahead(initial)
        return self._engine.form(lambda: initial)

    def check_run(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> None:
        make_plan(self, fetches, feed_keys)

    def effects_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> RunEffects:
        needed = needed_for(self, fetches, feed_keys)

        def having(*effects: Effect) -> frozenset[Operation]:
            return frozenset(op for op in needed if op.effect in effects)

        return RunEffects(
            inputs=tuple(op for op in needed if op.type == "Inputs"),
            assignments=tuple(op for op in needed if op.assigns is not None and op.type != LATEST),
            steps=having(Effect.STEP),
            step_captures=having(Effect.STEP_CAPTURE),
            captures=having(*CAPTURES),
            reads=having(Effect.READ),
            gathers=having(Effect.GATHER),
        )

    def step_part(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
        step = get_global_step(self)
        effects = self.effects_of(fetches, feed_keys)
        if step is None or any(op.assigns is step for op in effects.assignments):
            return StepPart.WHOLE
        if not any(op.assigns is step for op in self.get_operations()):
            return StepPart.WHOLE  # nothing tells one run from another
        return StepPart.PART if effects.steps else StepPart.NONE

    def is_value(self, element: Any) -> bool:
        found = self.as_graph_element(element)
        return (found.op if isinstance(found, Tensor) else found).effect is not Effect.NONE

    def _check_own(self, part: Tensor | Operation) -> None:
        if part.graph is not self:
            raise ValueError(
                f"{part.name!r} belongs to another graph: build and run inside one "
                "`with graph.as_default():`"
            )

    def _unknown(self, kind: str, name: str) -> str:
        operations = self._operations
        if not operations:
            return (
                f"no {kind} is named {name!r}, as the graph is empty: enter yours, with "
                "graph.as_default()"
            )
        known = list(operations)
        if kind == "tensor":
            known = [tensor.name for op in operations.values() for tensor in op.outputs]
        return f"no {kind} is named {name!r} in the graph{suggestion(name, known)}"


def _latest(old: Any, new: Any) -> Any:
    return new


_root_lock = threading.Lock()


@cache
def _root_graph() -> Graph:
    return Graph()


def _shared_root() -> Graph:
    with _root_lock:
        return _root_graph()


find_default_graph_with(_shared_root)


def own_graph(graph: BaseGraph | None = None) -> Graph:
    """Return ``graph``, or the default graph; TypeError: it is a framework's own."""
    graph = graph or get_default_graph()
    if not isinstance(graph, Graph):
        raise TypeError(f"the default graph is {graph.whose}")
    return graph


def name_scope(name: str) -> AbstractContextManager[str]:
    """As ``Graph.name_scope``, in the default graph."""
    return get_default_graph().name_scope(name)


def random_key(seed: int = 0, name: str | None = None) -> Tensor:
    """Return a tensor that is a fresh random key in each run that needs it.

    Depending on the engine, it is a typed key, as from ``jax.random.key``, a
    ``numpy.random.Generator``, or a ``torch.Generator`` of the default device.

    All functions that take it in one run get the same: give each its own, or split the key. Keys
    depend on the seed, the name, and how many runs have drawn one without an error: a count that
    checkpoints hold as the variable ``<name>/runs``.

    Args:
        seed: An unsigned integer of 32 bits.
        name: The name scope of the key; the tensor is ``"<name>/key:0"``. None: ``"random_key"``.

    Raises:
        TypeError: If ``seed`` is not an integer.
        ValueError: If it does not fit into 32 bits.
    """
    seed = operator.index(seed)
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed}")
    name = name or "random_key"
    graph = own_graph()
    with graph.name_scope(name) as scope:
        keys = [GraphKeys.GLOBAL_VARIABLES]
        runs = Variable(0, name="runs", collections=keys, on_host=True)
        op = graph.add(
            "RandomKey",
            partial(graph.engine.random_key, seed, zlib.crc32(scope.encode())),
            (runs,),
            name="key",
            control_inputs=[runs.assign_add(1, name="count").op],
        )
    return op.outputs[0]

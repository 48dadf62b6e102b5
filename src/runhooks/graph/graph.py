"""``Graph``: the operations of a computation, their names and collections, and their engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runhooks.engines import foreign
from runhooks.engines.engine import Compiled, Engine, load_engine
from runhooks.graph import names, nest
from runhooks.graph.tensor import Operation, Placement, Tensor
from runhooks.near_names import suggestion

if TYPE_CHECKING:
    from runhooks.graph.parts import Parts
    from runhooks.graph.plan import Body
    from runhooks.graph.variable import Variable


class Graph:
    """A deferred graph: what is added to it is computed when a session runs it.

    ``engine``: what computes it, ``"python"`` (NumPy, or any callable), ``"jax"``, ``"torch"``, or
    an engine of your own: an object with the methods of ``runhooks.engines.engine.Engine``.

    Raises ValueError for the name of no engine, TypeError for what is none, ImportError if its
    framework is not installed.
    """

    def __init__(self, engine: str | Engine = "python") -> None:
        self.engine: Engine = load_engine(engine) if isinstance(engine, str) else engine
        if isinstance(engine, type) or not hasattr(self.engine, "compile"):
            raise TypeError(f"engine must be the name of an engine or an Engine, got {engine!r}")
        #: What fetches and feeds compiled to, kept for every session of this graph.
        self.executables: dict[Hashable, Any] = {}
        #: What its steps change in place beside the variables of a session; None: nothing.
        self.parts: Parts | None = None
        self._compiled: dict[Body, Compiled] = {}
        self._operations: dict[str, Operation] = {}
        self._collections: dict[str, list[Any]] = {}
        self._names = names.UniqueNames()
        self._tags = names.UniqueNames()
        self._scope = ""
        self._finalized = self._finalized_for_good = False
        self._users = 0

    def __repr__(self) -> str:
        return f"<Graph engine={self.engine.name!r} operations={len(self._operations)}>"

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make it the default graph of this thread inside the ``with`` block."""
        with entered(self):
            yield self

    @property
    def launched(self) -> Graph:
        """The graph that sessions have: this one. What stands for another says which."""
        return self

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
    ) -> Operation:
        """Add an operation that computes ``fn(*args)``; tensors in ``args`` stand for their values.

        ``name`` is put under the current name scope and made unique. A function that is given
        ``assigns`` takes the old value of that variable before ``args``.

        Raises RuntimeError if the graph is finalized, ValueError for a tensor of another graph.
        """
        if self._finalized:
            raise RuntimeError(
                f"the graph is finalized and cannot be added to (adding {name!r}): "
                "build it before the session, or in a hook's begin()"
            )
        inputs, controls = nest.tensors(args), tuple(control_inputs)
        for tensor in inputs:
            self._check_own(tensor)
        for control in controls:
            self._check_own(control)
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
        )
        self._operations[op.name] = op
        return op

    def compiled(self, body: Body) -> Compiled:
        """What the engine made of ``body``, once for all sessions of this graph."""
        if body not in self._compiled:
            self._compiled[body] = self.engine.compile(body)
        return self._compiled[body]

    def finalize(self) -> None:
        """Make it read-only: adding to it raises RuntimeError from now on."""
        self._finalized = True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While somebody runs it. Being finalized in that time ends with the last who does.

        As in TensorFlow, so that a next session's hooks can add to it.
        """
        if self._users == 0:
            self._finalized_for_good = self._finalized
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._finalized = self._finalized_for_good

    @property
    def finalized(self) -> bool:
        """Whether ``finalize`` was called."""
        return self._finalized

    @contextmanager
    def name_scope(self, name: str) -> Iterator[str]:
        """Put the names of what is added inside the ``with`` block under ``name + "/"``."""
        outer = self._scope
        self._scope = f"{self.unique_name(names.check(name))}/"
        try:
            yield self._scope
        finally:
            self._scope = outer

    @property
    def scope(self) -> str:
        """The current name scope with its "/"; "" outside any."""
        return self._scope

    def has_operation(self, name: str) -> bool:
        """Whether there is an operation of that name, which is not put under the scope."""
        return name in self._operations

    def unique_name(self, name: str) -> str:
        """``name`` under the current scope, with ``_1``, ``_2`` added if it is taken."""
        return self._names.unique(self._scope + names.check(name))

    def unique_tag(self, name: str) -> str:
        """As ``unique_name``, among the tags of summaries alone."""
        return self._tags.unique(self._scope + names.check(name))

    def get_operations(self) -> list[Operation]:
        """All operations, in the order in which they were added."""
        return list(self._operations.values())

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation of that name; KeyError if there is none."""
        try:
            return self._operations[name]
        except KeyError:
            raise KeyError(self._unknown("operation", name)) from None

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The tensor of that name, such as ``"loss:0"``; KeyError if there is none."""
        operation, _, index = name.rpartition(":")
        op = self._operations.get(operation)
        if op is None or not index.isdecimal() or int(index) >= len(op.outputs):
            raise KeyError(self._unknown("tensor", name))
        return op.outputs[int(index)]

    def as_graph_element(self, element: Any) -> Tensor | Operation:
        """The tensor or operation of this graph that ``element``, itself or its name, means.

        Raises ValueError for an unknown name and for a part of another graph, TypeError for
        anything that is neither tensor, operation nor name.
        """
        if isinstance(element, str):
            find = self.get_tensor_by_name if ":" in element else self.get_operation_by_name
            try:
                return find(element)
            except KeyError as error:
                raise ValueError(error.args[0]) from None
        if isinstance(element, Tensor | Operation):
            self._check_own(element)
            return element
        raise TypeError(f"not a tensor, operation, variable or name: {element!r}")

    def add_to_collection(self, key: str, value: Any) -> None:
        """Add ``value`` to the collection ``key``. Raises RuntimeError if finalized."""
        if self._finalized:
            raise RuntimeError(
                f"the graph is finalized and its collection {key!r} cannot be added to"
            )
        self._collections.setdefault(key, []).append(value)

    def get_collection(self, key: str) -> list[Any]:
        """A copy of the collection ``key``; empty if there is none."""
        return list(self._collections.get(key, ()))

    def get_collection_ref(self, key: str) -> list[Any]:
        """The collection ``key`` itself."""
        return self._collections.setdefault(key, [])

    def _check_own(self, part: Tensor | Operation) -> None:
        if part.graph is not self:
            raise ValueError(
                f"{part.name!r} belongs to another graph: a run, and an operation, can use the "
                "parts of one graph only; build and run inside one `with graph.as_default():`"
            )

    def _unknown(self, kind: str, name: str) -> str:
        operations = self._operations
        known = list(operations)
        if kind == "tensor":
            known = [tensor.name for op in operations.values() for tensor in op.outputs]
        near = suggestion(name, known)
        return f"no {kind} is named {name!r} in the graph{near}"


class _Defaults(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []


_defaults = _Defaults()


@contextmanager
def entered(graph: Any) -> Iterator[None]:
    """Make ``graph``, or what stands for one, the default graph inside the ``with`` block."""
    _defaults.stack.append(graph)
    try:
        yield
    finally:
        _defaults.stack.pop()


_root: Graph | None = None
_root_lock = threading.Lock()


def get_default_graph() -> Graph:
    """The graph of the innermost ``with graph.as_default()`` of this thread.

    Outside any, that of TensorFlow if TensorFlow is building one, as in a ``with`` block of a
    ``tf.Graph``; and else one graph with the python engine that the whole process shares.
    """
    global _root
    if _defaults.stack:
        return _defaults.stack[-1]  # type: ignore[no-any-return]
    if (graph := foreign.default_graph()) is not None:
        return graph  # type: ignore[no-any-return]
    with _root_lock:
        if _root is None:
            _root = Graph()
        return _root


def name_scope(name: str) -> Any:
    """``get_default_graph().name_scope(name)``: a context manager."""
    return get_default_graph().name_scope(name)

"""``EagerEngine``: what engines have in common that call the user's functions one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runhooks.engines.conform import by_path, check_structure
from runhooks.engines.engine import Compiled
from runhooks.errors import AbortedError, UnavailableError
from runhooks.graph.evaluate import evaluate
from runhooks.graph.plan import Body
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable

Evaluate = Callable[[dict[Tensor, Any], Mapping[Variable, Any]], dict[Variable, Any]]


class EagerEngine:
    """Evaluates a graph operation by operation; pytrees are lists, tuples and dicts."""

    def compile(self, body: Body) -> Compiled:
        reads = (*body.assigned, *body.kept)
        evaluate = self.evaluator(body.operations)

        def run(variables: Mapping[Variable, Any], given: Sequence[Any]) -> list[Any]:
            # A function may change what it is handed, and a caller what it gets back.
            values: dict[Tensor, Any] = {v: self.own(variables[v]) for v in reads}
            values.update(zip(body.given, given, strict=True))
            before = [variables[v] for v in body.assigned]
            assigned = evaluate(values, variables)
            for variable, old in zip(body.assigned, before, strict=True):
                if variables[variable] is not old:
                    raise RuntimeError(
                        f"variable {variable.op.name!r} was assigned by a run inside this run, "
                        "which assigns it too: make the inner run a part of the graph"
                    )
            fetched = [self.fetched(t, self._own_key(t, values[t])) for t in body.fetches]
            return [self.own(assigned[v]) for v in body.assigned] + fetched

        return run

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        """A function that puts the outputs of ``operations`` into the values it is given.

        It returns the variables' new values.
        """
        return lambda values, variables: evaluate(
            operations, values, variables, self.conform, self.read_args
        )

    def read_args(self, op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
        """What the function of ``op`` is called with."""
        keys = {t: self._own_key(t, values[t]) for t in op.inputs if t.op.type == "RandomKey"}
        return op.read_args({**values, **keys} if keys else values)

    def own(self, value: Any) -> Any:
        """A copy of ``value`` in which whoever has ``value`` can change nothing."""
        raise NotImplementedError

    def own_key(self, key: Any) -> Any:
        """A random key in the state of ``key``, which drawing from the other does not change."""
        raise NotImplementedError

    def fetched(self, tensor: Tensor, value: Any) -> Any:
        """``value``, that of ``tensor``, as whoever fetched it is to have it."""
        return value

    def conform(self, name: str, old: Any, new: Any) -> Any:
        """As ``Engine.conform``."""
        raise NotImplementedError

    def sum(self, leaf: Any, delta: Any) -> Any:
        """``leaf + delta``."""
        return leaf + delta

    def add(self, old: Any, delta: Any) -> Any:
        if not isinstance(old, list | tuple | Mapping):
            return self.sum(old, delta)
        leaves, deltas = self.leaves(old), self.leaves(delta)
        if "" in deltas:
            deltas = dict.fromkeys(leaves, delta)
        check_structure("assign_add", leaves, deltas)
        return self.with_leaves(old, [self.sum(leaf, deltas[p]) for p, leaf in leaves.items()])

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, AbortedError | UnavailableError)

    def leaves(self, value: Any) -> dict[str, Any]:
        return by_path(_walk("", value))

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        return _rebuilt(value, iter(leaves))

    def map_leaves(self, fn: Callable[[Any], Any], value: Any) -> Any:
        """``value`` with ``fn`` of each leaf in its place, in new containers."""
        return _rebuilt(value, (fn(leaf) for _, leaf in _walk("", value)))

    def memory(self) -> dict[str, int]:
        return {}

    def _own_key(self, tensor: Tensor, value: Any) -> Any:
        # A generator changes as it is used. What one reader draws must not depend on whether
        # another, such as a hook on its due step, has drawn before.
        return self.own_key(value) if tensor.op.type == "RandomKey" else value


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    elif value is None:
        return
    else:
        yield path, value
        return
    for key, part in parts:
        yield from _walk(f"{path}/{key}" if path else str(key), part)


def _rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _rebuilt(part, leaves) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([_rebuilt(part, leaves) for part in value])
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(part, leaves) for part in value)
    return None if value is None else next(leaves)

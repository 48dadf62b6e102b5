"""``Tensor`` and ``Operation``: the nodes of a deferred graph.

A tensor is a value that a run will compute: an array, a number or any pytree of these. Arithmetic
on tensors, and indexing them, adds operations to their graph and computes nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from runhooks.graph.graph import Graph
    from runhooks.graph.variable import Variable


class Tensor:
    """One output of an operation, named ``"<operation>:<index>"``.

    ``==`` asks whether two tensors are the same one, as in TensorFlow's graphs; to compare their
    values, call a function of them.
    """

    __slots__ = ("__weakref__", "index", "op")

    # NumPy must leave `array + tensor` to the tensor instead of trying it on every element.
    __array_ufunc__ = None

    def __init__(self, op: Operation, index: int) -> None:
        self.op = op
        self.index = index

    @property
    def name(self) -> str:
        """``"loss:0"`` for the first output of the operation ``"loss"``."""
        return f"{self.op.name}:{self.index}"

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self.op.graph

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self.name!r} has no truth value before a run computes it: fetch it first"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self.name!r} cannot be iterated before a run computes it: "
            "give num_outputs to the call that makes it, or index it"
        )

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            f"{self.name!r} is no array before a run computes it: fetch it with run(), or let a "
            "function compute with it, rh.call(fn, tensor)"
        )

    __jax_array__ = __float__ = __int__ = __index__ = __len__ = __array__

    def _apply(self, kind: str, fn: Callable[..., Any], *args: Any) -> Tensor:
        op = self.graph.add(kind, fn, args, name=kind.lower(), placement=Placement.EITHER)
        return op.outputs[0]

    def __getitem__(self, key: Any) -> Tensor:
        return self._apply("GetItem", operator.getitem, self, key)

    def __neg__(self) -> Tensor:
        return self._apply("Neg", operator.neg, self)

    def __abs__(self) -> Tensor:
        return self._apply("Abs", operator.abs, self)

    def __invert__(self) -> Tensor:
        return self._apply("Invert", operator.invert, self)

    def __add__(self, other: Any) -> Tensor:
        return self._apply("Add", operator.add, self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self._apply("Add", operator.add, other, self)

    def __sub__(self, other: Any) -> Tensor:
        return self._apply("Sub", operator.sub, self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._apply("Sub", operator.sub, other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self._apply("Mul", operator.mul, self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._apply("Mul", operator.mul, other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return self._apply("Div", operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._apply("Div", operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return self._apply("FloorDiv", operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._apply("FloorDiv", operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Tensor:
        return self._apply("Mod", operator.mod, self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._apply("Mod", operator.mod, other, self)

    def __pow__(self, other: Any) -> Tensor:
        return self._apply("Pow", operator.pow, self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._apply("Pow", operator.pow, other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return self._apply("MatMul", operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._apply("MatMul", operator.matmul, other, self)

    def __and__(self, other: Any) -> Tensor:
        return self._apply("And", operator.and_, self, other)

    def __rand__(self, other: Any) -> Tensor:
        return self._apply("And", operator.and_, other, self)

    def __or__(self, other: Any) -> Tensor:
        return self._apply("Or", operator.or_, self, other)

    def __ror__(self, other: Any) -> Tensor:
        return self._apply("Or", operator.or_, other, self)

    def __xor__(self, other: Any) -> Tensor:
        return self._apply("Xor", operator.xor, self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return self._apply("Xor", operator.xor, other, self)

    def __lt__(self, other: Any) -> Tensor:
        return self._apply("Less", operator.lt, self, other)

    def __le__(self, other: Any) -> Tensor:
        return self._apply("LessEqual", operator.le, self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self._apply("Greater", operator.gt, self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self._apply("GreaterEqual", operator.ge, self, other)


class Placement(Enum):
    """Where an operation may be computed."""

    ENGINE = "engine"  # in what the engine compiles: the user's functions
    HOST = "host"  # before or after it: inputs, summaries, the global step
    EITHER = "either"  # arithmetic: on the host where something on the host needs it


class Operation:
    """A node: a function of tensors and constants, with a name that is unique in its graph.

    ``type`` says what it is ("Call", "Add", "Placeholder"). ``fn`` computes it from ``args``, a
    nest in which tensors stand for their values, as ``read_args`` reads them; None if there is
    nothing to compute. ``assigns`` is the variable that gets the result, and whose old value
    ``fn`` then takes first. ``number`` counts the operations of the graph: inputs have lower ones.
    """

    __slots__ = (
        "__weakref__",
        "args",
        "assigns",
        "control_inputs",
        "fn",
        "graph",
        "inputs",
        "name",
        "number",
        "outputs",
        "placement",
        "read_args",
        "type",
    )

    def __init__(
        self,
        graph: Graph,
        kind: str,
        name: str,
        number: int,
        *,
        fn: Callable[..., Any] | None,
        args: tuple[Any, ...],
        inputs: tuple[Tensor, ...],
        read_args: Callable[[Mapping[Tensor, Any]], tuple[Any, ...]],
        control_inputs: tuple[Operation, ...],
        num_outputs: int,
        placement: Placement,
        assigns: Variable | None,
    ) -> None:
        self.graph = graph
        self.type = kind
        self.name = name
        self.number = number
        self.fn = fn
        self.args = args
        self.inputs = inputs
        self.read_args = read_args
        self.control_inputs = control_inputs
        self.placement = placement
        self.assigns = assigns
        self.outputs: tuple[Tensor, ...] = tuple(Tensor(self, i) for i in range(num_outputs))

    def __repr__(self) -> str:
        return f"<Operation {self.name!r} type={self.type}>"

"""``Tensor``, ``Operation`` and ``Variable``: the nodes of a graph."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum
from typing import Any, NoReturn, TypeAlias

import numpy as np

from runhooks.errors import add_note
from runhooks.graph.base import BaseGraph, GraphKeys, get_default_graph
from runhooks.near_names import suggestion

_VALID = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_.\\/-]")


def check_name(name: str) -> str:
    """Return the name of an operation if it is valid; else raise ValueError or TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r}: look at the order of the arguments")
    if not _VALID.fullmatch(name):
        raise ValueError(
            f"name must start with a letter, digit or '.', followed by these and '_', '-', '/', "
            f"got {name!r}"
        )
    return name


def cleaned_name(name: str, otherwise: str) -> str:
    """Return ``name`` with invalid characters replaced, or ``otherwise`` if nothing is left."""
    return _INVALID_CHARACTER.sub("_", name).lstrip("_-/>\\") or otherwise


_NO_INIT = "there are no initializers to run: in a new session, it has its initial value"
_ITSELF = "it is the tensor of its value; session.run(variable) fetches it"

#: What to do instead, by the names of TensorFlow's methods.
INSTEAD = {
    "initializer": _NO_INIT,
    "initialized_value": _NO_INIT,
    "eval": _ITSELF,
    "value": _ITSELF,
    "read_value": _ITSELF,
    "assign_sub": "use variable.assign_add(-delta)",
    "load": "fetch variable.assign(value), or call session.assign({name: value})",
}


#: The parts of a value one level down, by key; none of a leaf.
Children: TypeAlias = Callable[[Any], Mapping[str, Any]]


class Part:
    """A function that returns a part of its first argument.

    Out of a container it takes what is there: an engine need not compile it, and may call it
    after a run.
    """

    __slots__ = ()

    def __call__(self, value: Any, *args: Any) -> Any:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Item(Part):
    tensor: str
    place: str

    def __call__(self, value: Any, *args: Any) -> Any:
        (key,) = args
        try:
            return value[key]
        except Exception as error:
            if isinstance(error, KeyError) and isinstance(value, Mapping):
                error = _no_item(self.tensor, value, key)
            add_note(error, f"the item is asked for at {self.place}")
            raise error from None


@dataclass(slots=True, eq=False)
class Below(Part):
    """Takes what is at a path below a value, as ``"dense/kernel"``, or raises ``missing``."""

    path: str
    children: Children
    missing: Callable[[Any], Exception]

    def __call__(self, value: Any, *args: Any) -> Any:
        for found in _at(self.path, value, self.children):
            return found
        raise self.missing(value)


def _at(path: str, value: Any, children: Children) -> Iterator[Any]:
    for key, child in children(value).items():  # keys may have a "/" in them
        if key == path:
            yield child
        elif path.startswith(f"{key}/"):
            yield from _at(path.removeprefix(f"{key}/"), child, children)


def paths_below(value: Any, children: Children) -> Iterator[str]:
    """Yield the paths of all below ``value``, containers first."""
    for key, child in children(value).items():
        yield key
        yield from (f"{key}/{path}" for path in paths_below(child, children))


def _no_item(tensor: str, value: Mapping[Any, Any], key: Any) -> KeyError:
    known = list(map(str, value))
    return KeyError(
        f"the value of {tensor!r} has no item {key!r}: it has {known}{suggestion(str(key), known)}"
    )


_Unary: TypeAlias = "Callable[[Tensor], Tensor]"
_Binary: TypeAlias = "Callable[[Tensor, Any], Tensor]"


def _apply(
    graph: BaseGraph, kind: str, fn: Callable[..., Any], *args: Any, name: str = ""
) -> Tensor:
    name = name or kind.lower()
    op: Operation = graph.add(kind, fn, args, name=name, placement=Placement.EITHER)
    return op.outputs[0]


def _unary(kind: str, fn: Callable[[Any], Any]) -> _Unary:
    return lambda self: _apply(self.graph, kind, fn, self)


def _compared(kind: str, fn: Callable[[Any, Any], Any]) -> _Binary:
    return lambda self, other: _apply(self.graph, kind, fn, self, other)


def _binary(kind: str, fn: Callable[[Any, Any], Any]) -> tuple[_Binary, _Binary]:
    return _compared(kind, fn), lambda self, other: _apply(self.graph, kind, fn, other, self)


class Tensor:
    """A value that a run computes: an array, a number or any pytree of these.

    Arithmetic and indexing add operations to its graph. ``==`` compares identity, as in
    TensorFlow's graphs; to compare values, use ``rh.call``.
    """

    __slots__ = ("__weakref__", "index", "op")

    # Or NumPy would try `array + tensor` on every element.
    __array_ufunc__ = None

    def __init__(self, op: Operation, index: int) -> None:
        self.op = op
        self.index = index

    @property
    def name(self) -> str:
        """Such as ``"loss:0"``."""
        return f"{self.op.name}:{self.index}"

    @property
    def graph(self) -> BaseGraph:
        """Its graph."""
        return self.op.graph

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self.name!r} has no truth value before a run computes it: fetch it first"
        )

    def __iter__(self) -> Iterator[Any]:
        form = self._container()
        return iter(form) if isinstance(form, Mapping) else (self[i] for i in range(len(form)))

    def __len__(self) -> int:
        return len(self._container())

    def _container(self) -> Any:
        form = self.graph.form_of(self)
        if isinstance(form, Mapping | list | tuple):
            return form
        raise TypeError(
            f"{self.name!r} cannot be iterated before a run computes it: give num_outputs to its "
            "call, or index it"
        )

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(self._not_an_array())

    __float__ = __int__ = __index__ = __array__

    @property
    def __jax_array__(self) -> NoReturn:
        # JAX replaces a TypeError.
        raise ValueError(self._not_an_array())

    def _not_an_array(self) -> str:
        return (
            f"{self.name!r} is not an array before a run computes it: fetch it, or compute with it "
            "in a function of the graph, rh.call(fn, tensor)"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or name in ("op", "index"):
            raise AttributeError(name)
        use = f"{name}()" if callable(vars(np.ndarray).get(name)) else name
        raise AttributeError(
            f"{self.name!r} is a tensor and has no attribute {name!r}: compute with its value in a "
            f"function of the graph, rh.call(lambda value: value.{use}, tensor)"
        )

    def __getitem__(self, key: Any) -> Tensor:
        fn = Item(self.name, _line_of_caller())
        return _apply(self.graph, "GetItem", fn, self, key, name=self._item_name(key))

    def _item_name(self, key: Any) -> str:
        # What is read of objects has such names already.
        if not isinstance(key, str | int) or self.op.effect in READS_OBJECTS:
            return ""
        name = cleaned_name(str(key), "")
        return f"{self.op.name.removeprefix(self.graph.scope)}/{name}" if name else ""

    __neg__ = _unary("Neg", operator.neg)
    __abs__ = _unary("Abs", operator.abs)
    __invert__ = _unary("Invert", operator.invert)
    __add__, __radd__ = _binary("Add", operator.add)
    __sub__, __rsub__ = _binary("Sub", operator.sub)
    __mul__, __rmul__ = _binary("Mul", operator.mul)
    __truediv__, __rtruediv__ = _binary("Div", operator.truediv)
    __floordiv__, __rfloordiv__ = _binary("FloorDiv", operator.floordiv)
    __mod__, __rmod__ = _binary("Mod", operator.mod)
    __pow__, __rpow__ = _binary("Pow", operator.pow)
    __matmul__, __rmatmul__ = _binary("MatMul", operator.matmul)
    __and__, __rand__ = _binary("And", operator.and_)
    __or__, __ror__ = _binary("Or", operator.or_)
    __xor__, __rxor__ = _binary("Xor", operator.xor)
    __lt__, __gt__ = _compared("Less", operator.lt), _compared("Greater", operator.gt)
    __le__, __ge__ = _compared("LessEqual", operator.le), _compared("GreaterEqual", operator.ge)


def _line_of_caller() -> str:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Placement(Enum):
    """Where an operation is computed."""

    ENGINE = "engine"  # the user's functions
    HOST = "host"  # inputs, summaries, the global step
    EITHER = "either"  # arithmetic: on the host where something on the host needs it


class Effect(Enum):
    """The effect of an operation beside its value; all but ``GATHER`` are on objects."""

    NONE = "none"
    STEP = "changes the objects in place"
    STEP_OUTPUT = "takes a value out of what a step returned"
    READ = "reads the objects"
    CAPTURE = "captures a value inside the objects, in any run"
    STEP_CAPTURE = "captures a value inside the objects while a step is made"
    GATHER = "asks the other ranks, all of which have to make it in the same run"


CAPTURES = frozenset({Effect.CAPTURE, Effect.STEP_CAPTURE})

READS_OBJECTS = CAPTURES | {Effect.READ}


#: An assignment by a function of ours: engines neither copy its arguments nor check its result.
UPDATE = "Update"

#: Reads a state after all updates of the run; an ``UPDATE`` that changes nothing if it assigns.
LATEST = "Latest"


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class Operation:
    """A node: a function of tensors and constants, with a name that is unique in its graph.

    ``type`` says what it is ("Call", "Add", "Placeholder"). ``fn``, if there is anything to
    compute, takes ``args`` as ``read_args`` reads them, behind the old value of the variable it
    ``assigns``. ``number`` orders the operations of the graph: inputs have lower ones.
    """

    graph: BaseGraph
    type: str
    name: str
    number: float
    _: KW_ONLY
    fn: Callable[..., Any] | None
    args: tuple[Any, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    read_args: Callable[[Mapping[Tensor, Any]], tuple[Any, ...]] = lambda values: ()
    control_inputs: tuple[Operation, ...] = ()
    num_outputs: InitVar[int] = 1
    placement: Placement = Placement.ENGINE
    assigns: Variable | None = None
    effect: Effect = Effect.NONE
    outputs: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self, num_outputs: int) -> None:
        self.outputs = tuple(Tensor(self, i) for i in range(num_outputs))

    def __repr__(self) -> str:
        return f"<Operation {self.name!r} type={self.type}>"


class Variable(Tensor):
    """A value that a session keeps from run to run and saves in checkpoints.

    As a tensor, it is the value from before the run.

    Args:
        initial_value: An array, a number or a pytree of these, or a function without arguments that
            returns one: it is called at each start, also if a checkpoint is then restored.
            Structure, shapes and dtypes never change. Do not change an array afterwards.
        name: The name of its operation; made unique.
        trainable: Whether it joins ``GraphKeys.TRAINABLE_VARIABLES``, if ``collections`` is None.
        collections: Those it joins; None: ``[GraphKeys.GLOBAL_VARIABLES]``. One in
            ``[GraphKeys.LOCAL_VARIABLES]`` is not saved.
        on_host: Whether it is an integer on the host, like the global step.
    """

    __slots__ = ("initial_value", "on_host")

    def __init__(
        self,
        initial_value: Any | Callable[[], Any],
        name: str | None = None,
        trainable: bool = True,
        collections: Sequence[str] | None = None,
        *,
        on_host: bool = False,
    ) -> None:
        name = "Variable" if name is None else name
        graph = get_default_graph()
        graph.engine.check_initial(name, initial_value)
        placement = Placement.HOST if on_host else Placement.ENGINE
        op: Operation = graph.add("Variable", None, name=name, placement=placement)
        super().__init__(op, 0)
        op.outputs = (self,)
        self.initial_value = initial_value
        self.on_host = on_host
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
            collections += [GraphKeys.TRAINABLE_VARIABLES] if trainable else []
        for key in collections:
            graph.add_to_collection(key, self)

    def __repr__(self) -> str:
        return f"<Variable {self.name!r}>"

    def __getattr__(self, name: str) -> NoReturn:
        if instead := INSTEAD.get(name):
            raise AttributeError(f"{self.name!r} has no attribute {name!r}: {instead}")
        super().__getattr__(name)

    def __getitem__(self, key: Any) -> Tensor:
        initial = self.initial_value
        if isinstance(initial, Mapping) and key not in initial:
            raise _no_item(self.name, initial, key)
        return super().__getitem__(key)

    def assign(self, value: Any, name: str | None = None) -> Tensor:
        """Return a tensor that, when run, sets the variable to ``value`` and is the new value.

        Fetch its ``op``, or a ``group`` with it, to have this done without a copy of the value.
        """
        assigned: Tensor = self.graph.add_assignment(self, "Assign", value, name)
        return assigned

    def assign_add(self, delta: Any, name: str | None = None) -> Tensor:
        """Return a tensor that, when run, adds ``delta`` leaf by leaf and is the new value."""
        added: Tensor = self.graph.add_assignment(self, "AssignAdd", delta, name)
        return added


def reads_state(tensor: Any) -> bool:
    """Return whether ``tensor`` has the value of a variable, or of objects, before the run."""
    while isinstance(tensor, Tensor) and tensor.op.type in ("Part", "GetItem"):
        if len(tensor.op.inputs) > 1:
            return False
        tensor = tensor.op.inputs[0]
    is_read = isinstance(tensor, Tensor) and tensor.op.effect is Effect.READ
    return is_read or isinstance(tensor, Variable)


class InitialFrom:
    """The initial value of a variable: ``fn`` of what a session has given ``variable``.

    So a function that makes that, at random for example, is called once.
    """

    def __init__(self, variable: Variable, fn: Callable[[Any], Any]) -> None:
        self.variable = variable
        self.fn = fn

    def __call__(self) -> Any:
        initial = self.variable.initial_value
        return self.fn(initial() if callable(initial) else initial)

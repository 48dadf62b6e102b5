"""The jitted functions of the jax engine."""

from __future__ import annotations

import logging
import operator
import reprlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jax.sharding import AxisType, NamedSharding

from runhooks import clock
from runhooks.arrays.jax import ARRAYS as JAX
from runhooks.arrays.jax import is_weak
from runhooks.arrays.registry import NO_LIBRARY, NUMPY, library_of
from runhooks.engines.jax.held import Layout, Static, hold, is_static, lay_out, release
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import BoundedCache, Compilation, Engine, evaluate, ready
from runhooks.graph.generators import have_moved, shared_states
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.plan import CALLER, Body

_log = logging.getLogger("runhooks")


def note_failure(error: Exception, assigned: Iterable[Any]) -> None:
    if type(error).__name__ == "TraceContextError":  # of Flax
        add_note(
            error,
            "a function of the graph cannot change a module that it closes over: hold "
            "the state of graphdef, state = nnx.split(model) in a variable, take it as "
            "an argument, and return the new one",
        )
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(list(assigned))):
        add_note(
            error,
            "this came after the device had taken over the variables' buffers: their values are "
            "gone, restore them from a checkpoint",
        )


def check_given(error: Exception, tensors: Sequence[Tensor], given: Sequence[Any]) -> None:
    """Raise TypeError in place of ``error``, which names no tensor, if JAX cannot take a value."""
    if not isinstance(error, TypeError):
        return
    for tensor, value in zip(tensors, given[: len(tensors)], strict=True):
        for leaf in jax.tree.leaves(value):
            try:
                jax.eval_shape(lambda it: it, leaf)
            except TypeError:
                shown, kind = reprlib.repr(leaf), type(leaf)
                cure = (
                    "and bind a function or a configuration before the graph is made, with "
                    f"functools.partial(step, {tensor.op.name}=...)"
                )
                if library_of(leaf) not in (NO_LIBRARY, NUMPY, JAX):
                    shown = f"a {kind.__module__}.{kind.__name__} of shape {tuple(leaf.shape)}"
                    cure = "such as numpy.asarray of this one"
                raise TypeError(
                    f"{tensor.name!r} is given {shown}, which JAX cannot compile: give it "
                    f"arrays and numbers alone, {cure}"
                ) from None


def form_of(value: Any) -> str:
    """Return the shapes and dtypes that a value has in JAX."""
    with suppress(TypeError):  # JAX cannot take it
        value = jax.eval_shape(lambda it: it, value)

    def form(leaf: Any) -> str:
        dtype = getattr(leaf, "dtype", type(leaf).__name__)
        return f"{dtype}{list(getattr(leaf, 'shape', ()))}"

    return str(jax.tree.map(form, value)).replace("'", "")


class FlatBody:
    """``body`` as a function of flat leaves: of ``reads``, ``body.given`` and ``placed``.

    ``placed``: arrays among the arguments of calls; as constants they would be slow to compile, and
    no tracers.
    """

    def __init__(self, engine: Engine, body: Body, structures: Mapping[Variable, Any]) -> None:
        self._engine = engine
        self.body = body
        self.reads = (*body.assigned, *body.kept)
        self._structures = [structures[variable] for variable in self.reads]
        self.new_leaves = sum(structures[variable].num_leaves for variable in body.assigned)
        self._constants = {id(leaf): leaf for op in body.operations for leaf in _arrays(op.args)}
        self.placed = list(self._constants.values())

    def by_variable(self, new: Sequence[Any]) -> dict[Variable, list[Any]]:
        rest = iter(new)
        pairs = zip(self.body.assigned, self._structures)  # noqa: B905 - then come those only read
        return {v: [next(rest) for _ in range(it.num_leaves)] for v, it in pairs}

    def evaluate(self, args: Sequence[Any]) -> tuple[dict[Tensor, Any], list[Any]]:
        """Return values by tensor, and new leaves."""
        rest = iter(args)
        old = [
            jax.tree.unflatten(it, [next(rest) for _ in range(it.num_leaves)])
            for it in self._structures
        ]
        variables = dict(zip(self.reads, old, strict=True))
        values: dict[Tensor, Any] = dict(zip(self.reads, old, strict=True))
        values.update((tensor, next(rest)) for tensor in self.body.given)
        traced = dict(zip(self._constants, rest, strict=True))
        operations = ready(self.body.operations, lambda op: partial(_own_args, op, traced))
        new = evaluate(operations, self._engine.conform, values, variables)
        return values, jax.tree.leaves([new[v] for v in self.body.assigned])


def own_buffers(inputs: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Return ``new``, each in a buffer of its own, maybe that of its old value in ``inputs``."""
    taken = {id(leaf) for leaf in jax.tree.leaves(list(inputs))}
    owned = []
    for leaf, before in zip(new, inputs):  # noqa: B905 - other inputs follow
        is_shared = id(leaf) in taken or not isinstance(leaf, jax.core.Tracer)
        owned.append(jnp.copy(leaf) if leaf is not before and is_shared else leaf)
        taken.add(id(owned[-1]))
    return owned


def copied(values: Sequence[Any], taken: Any) -> list[Any]:
    """Return ``values`` with copies of what is among the leaves of ``taken``."""
    ids = {id(leaf) for leaf in jax.tree.leaves(taken)}
    own = jax.tree.map(lambda leaf: jnp.copy(leaf) if id(leaf) in ids else leaf, list(values))
    return list(own)


def _own_args(
    op: Operation, traced: Mapping[int, Any], values: Mapping[Tensor, Any]
) -> tuple[Any, ...]:
    args = [
        nest.map_leaves(lambda leaf: traced.get(id(leaf), leaf), arg) if _arrays(arg) else arg
        for arg in op.args
    ]
    return nest.args_reader(tuple(args))({it: release(values[it]) for it in op.inputs})


def _arrays(args: Any) -> list[jax.Array]:
    return [leaf for leaf in nest.leaves(args) if isinstance(leaf, jax.Array)]


class _Traces(Compilation):
    """Notices when JAX traces a function; ``since``: when, if that is not logged yet."""

    def __init__(self) -> None:
        self.ahead_secs = 0.0  # of a trace before the call

    def begin(self) -> None:
        if self.since is None:
            self.since = clock.monotonic()

    def log(self, what: str, party: str, start: float | None = None) -> None:
        if self.since is not None:
            secs = clock.monotonic() - (start or self.since) + self.ahead_secs
            self.since, self.ahead_secs = None, 0.0
            whom = "" if party == CALLER else f" for {party}"
            _log.info("compiled %s%s in %.2f seconds", what, whom, secs)


class _Executable:
    """What JAX makes of a body for ``party``."""

    def __init__(self, traced: FlatBody, party: str, function: Callable[..., Any]) -> None:
        self.traced = traced
        self.party = party
        self.traces = _Traces()
        self.jitted: Any = jax.jit(function)

    def traced_shapes(self, args: Sequence[Any]) -> Any:
        start = clock.monotonic()
        shapes = self.jitted.eval_shape(*args, *self.traced.placed)
        self.traces.ahead_secs += clock.monotonic() - start
        return shapes


class PartExecutable(_Executable):
    def __init__(self, traced: FlatBody, party: str) -> None:
        super().__init__(traced, party, self.fetches)

    def __call__(self, args: Sequence[Any]) -> Any:
        """Return the new leaves of ``body.assigned``, then the values of its fetches, held."""
        start = clock.monotonic()
        results = self.jitted(*args, *self.traced.placed)
        if self.traces.since is not None and self.traced.body.operations:
            self.traces.log(_described(self.traced.body), self.party, start)
        return results

    def fetches(self, *args: Any) -> list[Any]:
        """Profiles show this name."""
        self.traces.begin()
        values, new = self.traced.evaluate(args)
        owned = own_buffers(args, new)
        fetched = [hold(values[t]) for t in self.traced.body.fetches]
        return [*owned, *copied(fetched, (args, owned))]


class CoreResult(NamedTuple):
    """What a core returns, or its shapes: leaves of new values; the arrays of ``layout``."""

    new: list[Any]
    arrays: list[Any]
    layout: Layout


class CoreExecutable(_Executable):
    """A training step: executables that share one trace of the user's functions."""

    def __init__(self, traced: FlatBody, party: str) -> None:
        super().__init__(traced, party, self._trace)
        self.layouts: list[Layout] = []
        self._numbering = threading.Lock()
        self.forms: list[str] = []  # of what was given at the last trace
        self._logged: list[str] = []
        self._donated = tuple(range(traced.new_leaves)) if traced.body.donate else ()
        self._steps: BoundedCache[Any, Any] = BoundedCache()

    def step(self, wide: bool, shardings: tuple[Any, ...]) -> Any:
        """Return what computes new leaves and, by number of layout, small arrays, or all."""
        return self._steps.get_or_make(
            (wide, shardings),
            lambda: jax.jit(self._step(wide, shardings), donate_argnums=self._donated),
        )

    def shapes(self, args: Sequence[Any]) -> CoreResult:
        return self.result(*self.traced_shapes(args))

    def result(self, new: list[Any], by_layout: Mapping[int, Any]) -> CoreResult:
        ((number, arrays),) = by_layout.items()
        return CoreResult(new, arrays, self.layouts[number])

    def settled(self, args: Sequence[Any]) -> list[Any]:
        """Return ``args`` with weakly typed variables as the step makes them.

        Else the second run would be compiled again.
        """
        count, now = self.traced.new_leaves, list(args)
        while any(map(is_weak, now[:count])):
            before = now[:count]
            now[:count] = map(_settled, before, self.shapes(now).new)
            if all(map(operator.is_, before, now)):
                break
        return now

    def log(self, wide_for: str | None = None) -> None:
        """Log a compilation, if any; ``wide_for``: who wants large arrays."""
        body = self.traced.body
        what = f"the step ({_described(body)})"
        if len(body.operations) == 1:
            what = repr(body.operations[0].name)
        before, self._logged = self._logged, self.forms
        others = [
            f"{tensor.op.name!r}: {now}"
            for tensor, then, now in zip(body.given, before, self.forms, strict=False)
            if then != now
        ]
        if others:
            what += f" again, with {', '.join(others)}"
        if wide_for is not None:
            what += " with the large values of its calls"
        self.traces.log(what, wide_for or self.party)

    def _step(self, wide: bool, shardings: tuple[Any, ...]) -> Callable[..., list[Any]]:
        def step(*args: Any) -> list[Any]:
            self.traces.begin()
            new, arrays, layout = self.result(*self.jitted(*args))
            constrained: Any = jax.lax.with_sharding_constraint
            for index, sharding in enumerate(shardings):
                if sharding is not None:
                    new[index] = constrained(new[index], sharding)
            # A dict is unpacked in C++; a pytree of ours would call Python.
            return [*new, {layout.number: tuple(arrays if wide else arrays[: layout.small])}]

        return step

    def _trace(self, *args: Any) -> Any:
        body = self.traced.body
        values, new = self.traced.evaluate(args)
        owned = own_buffers(args, new)
        with self._numbering:  # threads may trace it at once
            layout = Layout(len(self.layouts))
            self.layouts.append(layout)
        arrays = lay_out(layout, body, values, args, [new, owned])
        self.forms = [form_of(values[t]) for t in body.given]
        return owned, {layout.number: arrays}


def _settled(old: Any, new: Any) -> Any:
    is_settled = not is_weak(old) or new.weak_type
    return old if is_settled else jax.lax.convert_element_type(old, new.dtype)


def shardings_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return how the user has sharded each leaf, or None; () if none is.

    With what XLA chooses for a new value, the next step would have other bits than after a resume.
    """
    found = tuple(map(_sharding_of, leaves))
    return found if any(found) else ()


def _sharding_of(leaf: Any) -> NamedSharding | None:
    sharding = leaf.sharding if getattr(leaf, "committed", False) else None
    if not isinstance(sharding, NamedSharding) or AxisType.Explicit in sharding.mesh.axis_types:
        return None  # explicit axes are part of the type, which does not change
    return NamedSharding(sharding.mesh, sharding.spec)


def _described(body: Body) -> str:
    count = len(body.operations)
    return f"{count} operation{'' if count == 1 else 's'}"


class Once:
    """``fn``, traced once for all arguments of the same structure, shapes, dtypes and shardings.

    A trace that has drawn from a generator of NumPy or Python is not used again. A result that is
    an argument or another result is the same object, which tells what shares a buffer.
    """

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self._fn = fn
        self._name = name
        self._jitted = self._fresh()

    def __call__(self, *args: Any) -> Any:
        held = _static_unless_traced(hold(args))
        leaves = jax.tree.leaves(held)
        if not leaves:
            return self._fn(*args)
        before = shared_states()
        jaxpr = self._jitted.trace(*held).jaxpr.jaxpr
        results, structure = jax.tree.flatten(self._jitted(*held))
        if have_moved(before):
            self._jitted = self._fresh()
        first = dict(zip(jaxpr.invars, leaves, strict=True))
        results = [
            result if isinstance(var, Literal) else first.setdefault(var, result)
            for var, result in zip(jaxpr.outvars, results, strict=True)
        ]
        return release(jax.tree.unflatten(structure, results))

    def _fresh(self) -> Any:
        def fn(*held: Any) -> Any:
            return _static_unless_traced(hold(self._fn(*release(held))))

        fn.__name__ = fn.__qualname__ = self._name
        return jax.jit(fn)


def _static_unless_traced(held: Any) -> Any:
    def fixed(leaf: Any) -> Any:
        return leaf if isinstance(leaf, Static | jax.core.Tracer) else Static(leaf)

    return jax.tree.map(fixed, held, is_leaf=is_static)

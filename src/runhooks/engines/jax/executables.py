"""The jitted functions of the jax engine: ``PartExecutable`` and ``CoreExecutable``."""

from __future__ import annotations

import logging
import operator
import reprlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding

from runhooks import clock
from runhooks.arrays.jax import ARRAYS as JAX
from runhooks.arrays.jax import is_weak
from runhooks.arrays.numpy import ARRAYS as NUMPY
from runhooks.arrays.registry import NO_LIBRARY, library_of
from runhooks.engines.jax.held import Layout, hold, lay_out, release
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import BoundedCache, Compilation, Engine, evaluate, ready
from runhooks.graph.nodes import Operation, Tensor, Variable
from runhooks.graph.plan import CALLER, Body

#: What JAX raises if the value of an argument is needed while a function is traced.
_NOT_KNOWN = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def note_failure(error: Exception, assigned: Iterable[Any]) -> None:
    """Note on ``error`` what to do about it, where that is known."""
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


def note_static(error: Exception, step: str, args: Mapping[str, Any]) -> None:
    """Note on ``error``, raised by ``step``, that what must be known when it is traced is bound."""
    says_so = any(text in str(error) for text in ("Non-hashable static", "concrete value"))
    if not says_so and not isinstance(error, _NOT_KNOWN):
        return
    numbers = [name for name, value in args.items() if getattr(value, "shape", None) == ()]
    bound = ", ".join(f"{name}=..." for name in numbers or ["name"])
    add_note(
        error,
        "the arguments of a step are traced, as under jax.jit: bind one that must be known before, "
        f"such as a size or a flag, with functools.partial({step}, {bound})",
    )


def check_given(error: Exception, tensors: Sequence[Tensor], given: Sequence[Any]) -> None:
    """Raise TypeError in place of ``error`` if JAX cannot take a value that was given.

    Its own message would name neither the tensor nor what to do.
    """
    if not isinstance(error, TypeError):
        return
    for tensor, value in zip(tensors, given[: len(tensors)], strict=True):
        for leaf in jax.tree.leaves(value):
            try:
                jax.eval_shape(lambda it: it, leaf)
            except TypeError:
                raise TypeError(
                    f"{tensor.name!r} is given {_shown(leaf)}, which JAX cannot compile: give it "
                    f"arrays and numbers alone{_cure(leaf, tensor.op.name)}"
                ) from None


def _shown(leaf: Any) -> str:
    if not _is_foreign(leaf):
        return reprlib.repr(leaf)
    kind = type(leaf)
    return f"a {kind.__module__}.{kind.__name__} of shape {tuple(leaf.shape)}"


def _cure(leaf: Any, parameter: str) -> str:
    if _is_foreign(leaf):
        return ", such as numpy.asarray of this one"
    return (
        ", and bind a function or a configuration before the graph is made, with "
        f"functools.partial(step, {parameter}=...)"
    )


def _is_foreign(leaf: Any) -> bool:
    """Return whether ``leaf`` is an array of another framework."""
    return library_of(leaf) not in (NO_LIBRARY, NUMPY, JAX)


def forms_of(given: Sequence[Any]) -> list[str]:
    """Return the shapes and dtypes that values have in JAX, each as text."""
    return [_form_of(value) for value in given]


def note_new_forms(
    error: Exception, tensors: Sequence[Tensor], before: Sequence[str], now: Sequence[str]
) -> None:
    """Note on ``error`` which of ``tensors`` has another form than in a run before.

    Args:
        error: Raised while a function was traced for what they are given.
        tensors: What is given.
        before: The forms of their values in a run that was traced; empty: there was none.
        now: The forms of their values in this one.
    """
    for tensor, old, new in zip(tensors, before, now, strict=False):
        if old != new:
            add_note(error, f"{tensor.name!r} is given {new} here, and was given {old} before")


def _form_of(value: Any) -> str:
    with suppress(TypeError):  # JAX cannot take it
        value = jax.eval_shape(lambda it: it, value)
    return str(jax.tree.map(_form_of_leaf, value)).replace("'", "")


def _form_of_leaf(leaf: Any) -> str:
    shape = getattr(leaf, "shape", ())
    dtype = getattr(leaf, "dtype", type(leaf).__name__)
    return f"{dtype}{list(shape)}"


class FlatBody:
    """The operations of ``body`` as a function of flat leaves.

    They are those of the variables that it assigns and of those that it only reads. The values of
    ``body.given`` follow, and arrays among a call's arguments: inside the function these would be
    constants, compiled with it, slowly, and no tracers to the function that takes them.

    Args:
        engine: The engine.
        body: What it computes.
        structures: The structures of the variables, by which JAX need not take their values apart
            in each call.
    """

    def __init__(self, engine: Engine, body: Body, structures: Mapping[Variable, Any]) -> None:
        self._engine = engine
        self.body = body
        self.reads = (*body.assigned, *body.kept)
        self._structures = [structures[variable] for variable in self.reads]
        sizes = [structure.num_leaves for structure in self._structures]
        #: How many leaves the new values of ``body.assigned`` have.
        self.new_leaves = sum(sizes[: len(body.assigned)])
        self._leaves = sum(sizes)
        self._constants = {id(leaf): leaf for op in body.operations for leaf in _arrays(op.args)}
        self.placed = list(self._constants.values())

    def by_variable(self, new: Sequence[Any]) -> dict[Variable, list[Any]]:
        """Return the leaves of new values by variable."""
        rest = iter(new)
        pairs = zip(self.body.assigned, self._structures)  # noqa: B905 - then come those only read
        return {v: [next(rest) for _ in range(it.num_leaves)] for v, it in pairs}

    def evaluate(self, args: Sequence[Any]) -> tuple[dict[Tensor, Any], list[Any]]:
        """Compute all operations; return values by tensor, and the leaves of new values."""
        given_end = self._leaves + len(self.body.given)
        rest = iter(args)
        old = [
            jax.tree.unflatten(it, [next(rest) for _ in range(it.num_leaves)])
            for it in self._structures
        ]
        variables = dict(zip(self.reads, old, strict=True))
        values: dict[Tensor, Any] = dict(zip(self.reads, old, strict=True))
        values.update(zip(self.body.given, args[self._leaves : given_end], strict=True))
        traced = dict(zip(self._constants, args[given_end:], strict=True))
        operations = ready(self.body.operations, lambda op: partial(_own_args, op, traced))
        new = evaluate(operations, self._engine.conform, values, variables)
        return values, jax.tree.leaves([new[v] for v in self.body.assigned])


def own_buffers(inputs: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Return the leaves of variables' new values, each array in a buffer of its own.

    The next run is donated these buffers. So they may be shared neither with feeds or fetched
    values, nor with other variables; only with the variable's own old value.

    Args:
        inputs: All that the function is called with, the old leaves first.
        new: The new ones.
    """
    taken = {id(leaf) for leaf in jax.tree.leaves(list(inputs))}
    owned = []
    for leaf, before in zip(new, inputs):  # noqa: B905 - other inputs follow
        is_shared = id(leaf) in taken or not isinstance(leaf, jax.core.Tracer)
        owned.append(jnp.copy(leaf) if leaf is not before and is_shared else leaf)
        taken.add(id(owned[-1]))
    return owned


def copied(values: Sequence[Any], taken: Any) -> list[Any]:
    """Return ``values`` with copies of those arrays that are among the leaves of ``taken``."""
    ids = {id(leaf) for leaf in jax.tree.leaves(taken)}
    own = jax.tree.map(lambda leaf: jnp.copy(leaf) if id(leaf) in ids else leaf, list(values))
    return list(own)


def _own_args(
    op: Operation, traced: Mapping[int, Any], values: Mapping[Tensor, Any]
) -> tuple[Any, ...]:
    """Return the arguments of ``op``, in containers that its function may change.

    ``traced``: what stands in the place of constants, by their id.
    """
    args = [
        nest.map_leaves(lambda leaf: traced.get(id(leaf), leaf), arg) if _arrays(arg) else arg
        for arg in op.args
    ]
    return nest.args_reader(tuple(args))({it: release(values[it]) for it in op.inputs})


def _arrays(args: Any) -> list[jax.Array]:
    return [leaf for leaf in nest.leaves(args) if isinstance(leaf, jax.Array)]


_log = logging.getLogger("runhooks")


class _Traces(Compilation):
    """Notices when JAX traces a function, which it does before it compiles it.

    ``since`` is when a trace began that is not logged yet, by the monotonic clock; None: no trace.
    """

    def __init__(self) -> None:
        self._ahead_secs = 0.0

    def begin(self) -> None:
        if self.since is None:
            self.since = clock.monotonic()

    def ahead(self, trace: Callable[[], Any]) -> Any:
        """Return ``trace()``, which takes part of the time that compiling will have taken."""
        start = clock.monotonic()
        result = trace()
        self._ahead_secs += clock.monotonic() - start
        return result

    def log(self, what: str, party: str, start: float | None = None) -> None:
        """Log the compilation that followed a trace, if there was one.

        ``start`` is when the call began; None: with the trace.
        """
        if self.since is not None:
            secs = clock.monotonic() - (start or self.since) + self._ahead_secs
            self.since, self._ahead_secs = None, 0.0
            # A caller may be the loop or an evaluation.
            whom = "" if party == CALLER else f" for {party}"
            _log.info("compiled %s%s in %.2f seconds", what, whom, secs)


class PartExecutable:
    """A body that is one executable.

    Args:
        traced: What it computes.
        party: Who asks for it, for the log.
    """

    def __init__(self, traced: FlatBody, party: str) -> None:
        self.traced = traced
        self.party = party
        self.traces = _Traces()
        self.jitted = jax.jit(self._fetches())

    def __call__(self, args: Sequence[Any]) -> Any:
        """Return the new leaves of ``body.assigned``, then the values of its fetches, held."""
        start = clock.monotonic()
        results = self.jitted(*args, *self.traced.placed)
        self._log(start)
        return results

    def shapes(self, args: Sequence[Any]) -> Any:
        """Return the shapes and dtypes of the results, traced but not computed."""
        jitted, placed = cast(Any, self.jitted), self.traced.placed
        return self.traces.ahead(lambda: jitted.eval_shape(*args, *placed))

    def _log(self, start: float) -> None:
        if self.traces.since is not None and self.traced.body.operations:
            self.traces.log(_described(self.traced.body), self.party, start)

    def _fetches(self) -> Callable[..., Any]:
        def fetches(*args: Any) -> list[Any]:
            self.traces.begin()
            values, new = self.traced.evaluate(args)
            owned = own_buffers(args, new)
            fetched = [hold(values[t]) for t in self.traced.body.fetches]
            return [*owned, *copied(fetched, (args, owned))]

        return fetches


class CoreResult(NamedTuple):
    """What a core returns, as arrays or as their shapes and dtypes.

    Attributes:
        new: The leaves of the new values of ``body.assigned``.
        arrays: What its operations give besides.
        layout: Where the values of the operations are among these.
    """

    new: list[Any]
    arrays: list[Any]
    layout: Layout


class CoreExecutable:
    """A training step: executables that return what its operations give in part or in full.

    All are functions of the same arguments. They return the leaves of variables' new values, and a
    dict of one item: the number of the layout, and a tuple of the small arrays, or of all. The
    user's functions are traced once for all of them.

    Attributes:
        forms: The forms of what was given when they were last traced; empty: they were not yet.
    """

    def __init__(self, traced: FlatBody, party: str) -> None:
        self.traced = traced
        self.party = party
        self.traces = _Traces()
        self.layouts: list[Layout] = []
        self._numbering = threading.Lock()
        self.forms: list[str] = []
        self._logged: list[str] = []  # those of which the last line of the log tells
        self._operations = jax.jit(self._trace)
        self._donated = tuple(range(traced.new_leaves)) if traced.body.donate else ()
        self._steps: BoundedCache[Any, Any] = BoundedCache()

    def step(self, *, wide: bool = False, shardings: tuple[Any, ...] = ()) -> Any:
        """Return the jitted function that returns small arrays, and if ``wide`` large ones too.

        ``shardings``: those of the new leaves, as ``shardings_of`` returns them.
        """
        return self._steps.get_or_make(
            (wide, shardings),
            lambda: jax.jit(self._step(wide, shardings), donate_argnums=self._donated),
        )

    def shapes(self, args: Sequence[Any]) -> CoreResult:
        """Return what ``args`` lead to, traced but not computed."""
        trace, placed = cast(Any, self._operations).eval_shape, self.traced.placed
        return self._traced(self.traces.ahead(lambda: trace(*args, *placed)))

    def settled(self, args: Sequence[Any]) -> list[Any]:
        """Return ``args`` with weakly typed variables, such as numbers, as the step makes them.

        ``jax.lax.scan`` does so too. Else the second run would be compiled again.
        """
        count, now = self.traced.new_leaves, list(args)
        while any(map(is_weak, now[:count])):
            before = now[:count]
            now[:count] = map(_settled, before, self.shapes(now).new)
            if all(map(operator.is_, before, now)):
                break
        return now

    def log(self, wide_for: str | None = None) -> None:
        """Log the compilation of a step, if JAX has just compiled one.

        ``wide_for``: the party for which it returns large arrays too; None: it does not.
        """
        body = self.traced.body
        what = f"the step ({_described(body)})"
        if len(body.operations) == 1:  # no step of a training, such as what begins an epoch
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
            results = _results(self._traced(self._operations(*args)), wide=wide)
            return [*map(_sharded, results, shardings), *results[len(shardings) :]]

        return step

    def _trace(self, *args: Any) -> Any:
        body = self.traced.body
        values, new = self.traced.evaluate(args)
        owned = own_buffers(args, new)
        with self._numbering:  # sessions in other threads trace it, too
            layout = Layout(len(self.layouts))
            self.layouts.append(layout)
        arrays = lay_out(layout, body, values, args, [new, owned])
        self.forms = forms_of([values[t] for t in body.given])
        return owned, {layout.number: arrays}

    def _traced(self, returned: Any) -> CoreResult:
        """Return what ``_trace`` has returned, with its layout."""
        new, by_layout = returned
        ((number, arrays),) = by_layout.items()
        return CoreResult(new, arrays, self.layouts[number])


def _settled(old: Any, new: Any) -> Any:
    is_settled = not is_weak(old) or new.weak_type
    return old if is_settled else jax.lax.convert_element_type(old, new.dtype)


def shardings_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return how the user has sharded each leaf, None if not at all; () if none is.

    XLA gives a new value a sharding of its own choice. With that, the next step would be another
    program, which is compiled too, and has other bits than the one after a resume.
    """
    found = tuple(map(_sharding_of, leaves))
    return () if found.count(None) == len(found) else found


def _sharding_of(leaf: Any) -> NamedSharding | None:
    sharding = leaf.sharding if getattr(leaf, "committed", False) else None
    if not isinstance(sharding, NamedSharding) or AxisType.Explicit in sharding.mesh.axis_types:
        return None  # explicit axes are part of the type, which does not change
    return NamedSharding(sharding.mesh, sharding.spec)


def _sharded(leaf: Any, sharding: NamedSharding | None) -> Any:
    constrained: Any = jax.lax.with_sharding_constraint
    return leaf if sharding is None else constrained(leaf, sharding)


def _results(traced: CoreResult, *, wide: bool) -> list[Any]:
    """Return what a step returns, given all its arrays."""
    new, arrays, layout = traced
    # A dict of one item is unpacked in C++, where a pytree of ours would call Python.
    return [*new, {layout.number: tuple(arrays if wide else arrays[: layout.small])}]


def _described(body: Body) -> str:
    count = len(body.operations)
    return f"{count} operation{'' if count == 1 else 's'}"

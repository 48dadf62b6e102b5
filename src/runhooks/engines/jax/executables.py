"""The jitted functions of the jax engine: ``PartExecutable`` and ``CoreExecutable``."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from runhooks import clock
from runhooks.arrays.jax import is_weak
from runhooks.engines.jax.held import Layout, hold, lay_out, release
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import BoundedCache, Engine
from runhooks.graph.evaluate import evaluate
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
            "the device failed after it had taken over the variables' buffers: "
            "their values are gone, restore them from a checkpoint",
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
                    f"{tensor.name!r} is given {leaf!r}, which JAX cannot compile: give it arrays "
                    "and numbers alone, and bind a function or a configuration before the graph is "
                    f"made, with functools.partial(step, {tensor.op.name}=...)"
                ) from None


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


class _Form:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _form_of(value: Any) -> str:
    with suppress(TypeError):  # JAX cannot take it
        value = jax.eval_shape(lambda it: it, value)
    return str(jax.tree.map(_form_of_leaf, value))


def _form_of_leaf(leaf: Any) -> _Form:
    shape = getattr(leaf, "shape", ())
    dtype = getattr(leaf, "dtype", type(leaf).__name__)
    return _Form(f"{dtype}{list(shape)}")


class Evaluated(NamedTuple):
    """What tracing a body gives: values by tensor, and the new values of variables, held."""

    values: dict[Tensor, Any]
    new: dict[Variable, Any]


class TracedBody:
    """The operations of ``body`` as a function of the values of ``reads`` and ``body.given``.

    Arrays among a call's arguments are arguments of the function too. Inside it they would be
    constants: compiled with it, slowly, and no tracers to the function that takes them.
    """

    def __init__(self, engine: Engine, body: Body) -> None:
        self._engine = engine
        self.body = body
        self.reads = (*body.assigned, *body.kept)
        self._constants = {id(leaf): leaf for op in body.operations for leaf in _arrays(op.args)}
        self.placed = list(self._constants.values())

    def args(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> list[Any]:
        """Return the arguments of the function."""
        return [*[variables[v] for v in self.reads], *given, *self.placed]

    def evaluate(self, args: Sequence[Any]) -> Evaluated:
        """Compute all operations."""
        end = len(self.reads)
        given_end = end + len(self.body.given)
        variables = dict(zip(self.reads, args[:end], strict=True))
        values: dict[Tensor, Any] = dict(zip(self.reads, args[:end], strict=True))
        values.update(zip(self.body.given, args[end:given_end], strict=True))
        traced = dict(zip(self._constants, args[given_end:], strict=True))

        def read_args(op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
            return _own_args(op, values, traced)

        operations = self.body.operations
        new = evaluate(operations, values, variables, self._engine.conform, read_args)
        return Evaluated(values, new)


def own_buffers(inputs: Sequence[Any], old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Return the new values of variables, each array in a buffer of its own.

    The next run is donated these buffers. So they may be shared neither with feeds or fetched
    values, nor with other variables; only with the variable's own old value.
    """
    taken = {id(leaf) for leaf in jax.tree.leaves(inputs)}

    def own(leaf: Any, before: Any) -> Any:
        if leaf is not before and (id(leaf) in taken or not isinstance(leaf, jax.core.Tracer)):
            leaf = jnp.copy(leaf)
        taken.add(id(leaf))
        return leaf

    return [jax.tree.map(own, value, before) for value, before in zip(new, old, strict=True)]


def copied(values: Sequence[Any], taken: Any) -> list[Any]:
    """Return ``values`` with copies of those arrays that are among the leaves of ``taken``."""
    ids = {id(leaf) for leaf in jax.tree.leaves(taken)}
    own = jax.tree.map(lambda leaf: jnp.copy(leaf) if id(leaf) in ids else leaf, list(values))
    return list(own)


def _own_args(
    op: Operation, values: Mapping[Tensor, Any], traced: Mapping[int, Any]
) -> tuple[Any, ...]:
    """Return the arguments of ``op``, in containers that its function may change.

    ``traced``: what stands in the place of constants, by their id.
    """
    args = [
        nest.map_leaves(lambda leaf: traced.get(id(leaf), leaf), arg) if has_arrays(arg) else arg
        for arg in op.args
    ]
    return nest.args_reader(tuple(args))({it: release(values[it]) for it in op.inputs})


def has_arrays(args: Any) -> bool:
    """Return whether there is an array of JAX among ``args``."""
    return bool(_arrays(args))


def _arrays(args: Any) -> list[jax.Array]:
    return [leaf for leaf in nest.leaves(args) if isinstance(leaf, jax.Array)]


_log = logging.getLogger("runhooks")


class _Traces:
    """Notices when JAX traces a function, which it does before it compiles it.

    ``since`` is when a trace began that is not logged yet, by the monotonic clock; None: no trace.
    """

    __slots__ = ("_ahead_secs", "since")

    def __init__(self) -> None:
        self.since: float | None = None
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
        engine: The engine.
        body: What it computes.
        party: Who asks for it, for the log.
    """

    def __init__(self, engine: Engine, body: Body, party: str) -> None:
        self.traced = TracedBody(engine, body)
        self.party = party
        self.traces = _Traces()
        self.jitted = jax.jit(self._fetches())

    def __call__(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> Any:
        """Return the new values of ``body.assigned``, then those of ``body.fetches``, held."""
        start = clock.monotonic()
        results = self.jitted(*self.traced.args(variables, given))
        self._log(start)
        return results

    def shapes(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> Any:
        """Return the shapes and dtypes of the results, traced but not computed."""
        args = self.traced.args(variables, given)
        return self.traces.ahead(lambda: cast(Any, self.jitted).eval_shape(*args))

    def _log(self, start: float) -> None:
        if self.traces.since is not None and self.traced.body.operations:
            self.traces.log(_described(self.traced.body), self.party, start)

    def _fetches(self) -> Callable[..., Any]:
        def fetches(*args: Any) -> list[Any]:
            self.traces.begin()
            body = self.traced.body
            values, new = self.traced.evaluate(args)
            old = args[: len(body.assigned)]
            owned = own_buffers(args, old, [new[v] for v in body.assigned])
            fetched = [hold(values[t]) for t in body.fetches]
            return [*owned, *copied(fetched, (args, owned))]

        return fetches


class Traced(NamedTuple):
    """What a core returns, as arrays or as their shapes and dtypes.

    Attributes:
        new: The new values of ``body.assigned``.
        arrays: What its operations give besides.
        layout: Where the values of the operations are among these.
    """

    new: list[Any]
    arrays: list[Any]
    layout: Layout


class CoreExecutable:
    """A training step: executables that return what its operations give in part or in full.

    All are functions of the same arguments. They return the new values of variables, and a dict of
    one item: the number of the layout, and a tuple of the small arrays, or of all. The user's
    functions are traced once for all of them.

    Attributes:
        forms: The forms of what was given when they were last traced; empty: they were not yet.
    """

    def __init__(self, engine: Engine, body: Body, party: str) -> None:
        self.traced = TracedBody(engine, body)
        self.party = party
        self.traces = _Traces()
        self.layouts: list[Layout] = []
        self.forms: list[str] = []
        self._operations = jax.jit(self._trace)
        self._donated = tuple(range(len(body.assigned))) if body.donate else ()
        self._steps: BoundedCache[Any, Any] = BoundedCache()

    def step(self, *, wide: bool = False) -> Any:
        """Return the jitted function that returns small arrays, and if ``wide`` large ones too."""
        return self._steps.get_or_make(
            wide, lambda: jax.jit(self._step(wide=wide), donate_argnums=self._donated)
        )

    def shapes(self, args: Sequence[Any]) -> Traced:
        """Return what ``args`` lead to, traced but not computed."""
        trace = cast(Any, self._operations).eval_shape
        return self._traced(self.traces.ahead(lambda: trace(*args)))

    def settle(self, variables: dict[Variable, Any], given: Sequence[Any]) -> None:
        """Give weakly typed ``variables``, such as numbers, the dtypes that the step gives them.

        ``jax.lax.scan`` does so too. Else the second run would be compiled again.
        """
        assigned = self.traced.body.assigned
        while any(is_weak(leaf) for v in assigned for leaf in jax.tree.leaves(variables[v])):
            new = self.shapes(self.traced.args(variables, given)).new
            old = [variables[v] for v in assigned]
            settled = jax.tree.map(_settled, old, new)
            if all(map(operator.is_, jax.tree.leaves(old), jax.tree.leaves(settled))):
                return
            variables.update(zip(assigned, settled, strict=True))

    def log(self, wide_for: str | None = None) -> None:
        """Log the compilation of a step, if JAX has just compiled one.

        ``wide_for``: the party for which it returns large arrays too; None: it does not.
        """
        what = f"the step ({_described(self.traced.body)})"
        if wide_for is not None:
            what += " with the large values of its calls"
        self.traces.log(what, wide_for or self.party)

    def _step(self, *, wide: bool) -> Callable[..., list[Any]]:
        def step(*args: Any) -> list[Any]:
            self.traces.begin()
            return _results(self._traced(self._operations(*args)), wide=wide)

        return step

    def _trace(self, *args: Any) -> Any:
        body = self.traced.body
        values, assigned = self.traced.evaluate(args)
        new = [assigned[v] for v in body.assigned]
        owned = own_buffers(args, args[: len(body.assigned)], new)
        layout = Layout(len(self.layouts))
        arrays = lay_out(layout, body, values, args, [jax.tree.leaves(it) for it in (new, owned)])
        self.layouts.append(layout)
        given = args[len(self.traced.reads) :]
        self.forms = forms_of(given[: len(body.given)])
        return owned, {layout.number: arrays}

    def _traced(self, returned: Any) -> Traced:
        """Return what ``_trace`` has returned, with its layout."""
        new, by_layout = returned
        ((number, arrays),) = by_layout.items()
        return Traced(new, arrays, self.layouts[number])


def _settled(old: Any, new: Any) -> Any:
    is_settled = not is_weak(old) or new.weak_type
    return old if is_settled else jax.lax.convert_element_type(old, new.dtype)


def _results(traced: Traced, *, wide: bool) -> list[Any]:
    """Return what a step returns, given all its arrays."""
    new, arrays, layout = traced
    # A dict of one item is unpacked in C++, where a pytree of ours would call Python.
    return [*new, {layout.number: tuple(arrays if wide else arrays[: layout.small])}]


def _described(body: Body) -> str:
    count = len(body.operations)
    return f"{count} operation{'' if count == 1 else 's'}"

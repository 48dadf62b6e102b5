"""The jitted functions of the jax engine: ``PartExecutable`` and ``CoreExecutable``."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax

from runhooks import clock
from runhooks.arrays.jax import is_weak
from runhooks.engines.jax.failures import forms_of
from runhooks.engines.jax.held import hold, release
from runhooks.engines.jax.layout import Layout, arrays_of, lay_out
from runhooks.engines.jax.traced_body import TracedBody, copied, own_buffers
from runhooks.graph.bounded_cache import BoundedCache
from runhooks.graph.engine import Engine
from runhooks.graph.evaluate import evaluate
from runhooks.graph.plan import CALLER, Body
from runhooks.graph.tensor import Variable

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

    def compile(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> list[Any]:
        """Compile it, as ``__call__`` would; return the shapes of the results."""
        args = self.traced.args(variables, given)
        start = clock.monotonic()
        compiled = cast(Any, self.jitted).lower(*args).compile()
        self._log(start)
        shapes = self.shapes(variables, given)
        return list(_placed(shapes, compiled.output_shardings, args))

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
        arrays: What its operations give besides, and behind it the items that a run takes.
        layout: Where the values of the operations are among these.
    """

    new: list[Any]
    arrays: list[Any]
    layout: Layout

    def taking(self, items: Body | None) -> Traced:
        """Return it with the fetches of ``items``, arithmetic on its arrays, behind the others."""
        if items is None:
            return self
        leaves, trees = jax.tree.leaves(self.new), self.layout.trees
        values = {t: release(arrays_of(trees[t], self.arrays, leaves)) for t in items.given}
        evaluate(items.operations, values, {}, lambda name, old, new: new)
        return self._replace(arrays=[*self.arrays, *[values[t] for t in items.fetches]])

    def shapes_taking(self, items: Body | None) -> Traced:
        """Return the shapes and dtypes of what ``taking`` returns."""

        def taking(new: list[Any], arrays: list[Any]) -> list[Any]:
            return Traced(new, arrays, self.layout).taking(items).arrays

        return self._replace(arrays=jax.eval_shape(taking, self.new, self.arrays))


class CoreExecutable:
    """A training step: executables that return what its operations give in part or in full.

    All are functions of the same arguments. They return the new values of variables, and a dict of
    one item: the number of the layout, and a tuple of the small arrays, or of all, and behind these
    the items that a run takes out of them. The user's functions are traced once for all of them.

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

    def step(self, items: Body | None = None, *, wide: bool = False) -> Any:
        """Return the jitted function that returns ``items`` too, and if ``wide`` large arrays."""
        return self._steps.get_or_make(
            (items, wide), lambda: jax.jit(self._step(items, wide), donate_argnums=self._donated)
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

    def compile(self, args: Sequence[Any], items: Body | None, wide_for: str | None) -> Traced:
        """Compile what a run would run; return the shapes of the results."""
        traced = self.shapes(args)
        compiled = self.step(items, wide=wide_for is not None).lower(*args).compile()
        self.log(wide_for)
        shapes = traced.shapes_taking(items)
        results = _results(shapes, len(traced.arrays), wide=wide_for is not None)
        *new, by_layout = _placed(results, compiled.output_shardings, args)
        ((_, returned),) = by_layout.items()
        count = len(returned) - len(shapes.arrays) + len(traced.arrays)
        arrays = [*returned[:count], *traced.arrays[count:], *returned[count:]]
        return Traced(new, arrays, traced.layout)

    def log(self, wide_for: str | None = None) -> None:
        """Log the compilation of a step, if JAX has just compiled one.

        ``wide_for``: the party for which it returns large arrays too; None: it does not.
        """
        what = f"the step ({_described(self.traced.body)})"
        if wide_for is not None:
            what += " with the large values of its calls"
        self.traces.log(what, wide_for or self.party)

    def _step(self, items: Body | None, wide: bool) -> Callable[..., list[Any]]:
        def step(*args: Any) -> list[Any]:
            self.traces.begin()
            traced = self._traced(self._operations(*args))
            count = len(traced.arrays)
            arrays = traced.taking(items).arrays
            arrays[count:] = copied(arrays[count:], (args, traced.new, traced.arrays))
            return _results(traced._replace(arrays=arrays), count, wide=wide)

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


def _results(traced: Traced, count: int, *, wide: bool) -> list[Any]:
    """Return what a step returns, given all its arrays: ``count``, and items of these."""
    new, arrays, layout = traced
    returned = arrays if wide else [*arrays[: layout.small], *arrays[count:]]
    # A dict of one item is unpacked in C++, where a pytree of ours would call Python.
    return [*new, {layout.number: tuple(returned)}]


def _placed(shapes: Any, shardings: Any, args: Any) -> Any:
    """Return ``shapes`` as those of the arrays that an executable returns.

    If any of ``args`` is committed to devices, so are these, which makes another signature.
    """
    is_committed = any(
        isinstance(leaf, jax.Array) and leaf.committed for leaf in jax.tree.leaves(args)
    )
    if not is_committed:
        return shapes
    return jax.tree.map(
        lambda it, sharding: cast(Any, jax).ShapeDtypeStruct(
            it.shape, it.dtype, sharding=sharding, weak_type=it.weak_type
        ),
        shapes,
        shardings,
    )


def _described(body: Body) -> str:
    count = len(body.operations)
    return f"{count} operation{'' if count == 1 else 's'}"

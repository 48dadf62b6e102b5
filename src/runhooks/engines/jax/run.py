"""A run of the jax engine: the core, which is a training step, and parts for each party."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeVar

import jax

from runhooks.engines.jax.executables import (
    CoreExecutable,
    CoreResult,
    FlatBody,
    PartExecutable,
    check_given,
    form_of,
    note_failure,
    shardings_of,
)
from runhooks.engines.jax.held import Leaf, hold, is_held, release
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import AssignedError, BoundBody, BoundedCache, Engine, evaluate, ready
from runhooks.graph.nodes import Operation, Part, Tensor, Variable
from runhooks.graph.plan import (
    CALLER,
    Body,
    Party,
    core_of,
    is_arithmetic,
    part_of,
    stepping_party,
)

Executable = TypeVar("Executable", CoreExecutable, PartExecutable)


@dataclass(frozen=True)
class Binding:
    """The executables of one run before and after the core, and what is read of it."""

    before: list[PartExecutable]
    after: list[PartExecutable]
    trees: Mapping[Tensor, Any]  # as of ``Layout``
    wide_for: str | None  # who wants more than every run returns
    layout: int
    indices: list[int] | None  # of the fetches among its arrays, if nothing else is to be done
    held: frozenset[Tensor] = frozenset()  # the fetches to release

    def read(self, result: CoreResult) -> dict[Tensor, Any]:
        def array(leaf: Leaf) -> Any:
            return result.new[leaf.index] if leaf.is_new else result.arrays[leaf.index]

        return {tensor: jax.tree.map(array, tree) for tensor, tree in self.trees.items()}


class _Divider:
    """Finds the values that the parties of one run ask for."""

    def __init__(self, body: Body, core: CoreExecutable | None, shapes: CoreResult | None) -> None:
        self._body = body
        self._given = set(body.given)
        self._trees: dict[Tensor, Any] = {} if shapes is None else dict(shapes.layout.trees)
        of_core = None if core is None else core.traced.body
        self._core = set() if of_core is None else set(of_core.operations)
        self._donated = set(of_core.assigned) if of_core is not None and of_core.donate else set()

    def tree(self, tensor: Tensor) -> Any:
        """Return the value, as of ``Layout``; None if the core does not return it."""
        if tensor in self._given:
            return None
        if tensor not in self._trees:
            self._trees[tensor] = self._part(tensor.op)
        return self._trees[tensor]

    def divide(self, party: Party) -> tuple[Body, Body]:
        """Return what is computed for ``party`` before and after the core."""
        operations = self._computed(party)
        late = self._late(operations)
        late_inputs = {tensor for op in late for tensor in op.inputs}
        early = [op for op in operations if op not in late]
        made_early = {tensor for op in early for tensor in op.outputs}
        made_late = {tensor for op in late for tensor in op.outputs}
        unread = {t for t in party.fetches if isinstance(t, Variable) and self.tree(t) is None}
        old = {t for t in late_inputs & self._donated if self.tree(t) is None}
        copied = {
            t for t in party.fetches if any(it.is_new for it in jax.tree.leaves(self.tree(t)))
        }
        early_fetches = made_early & late_inputs.union(party.fetches) | unread | old
        late_fetches = made_late & set(party.fetches) | copied
        passed = {t for t in late_inputs if isinstance(t, Variable) and self.tree(t) is not None}
        after = replace(self._body, given=(*self._body.given, *old, *passed))
        return part_of(self._body, early, early_fetches), part_of(
            after, [op for op in operations if op in late], late_fetches
        )

    def _computed(self, party: Party) -> list[Operation]:
        """Return the operations whose values the core does not return."""
        wanted, computed = set(party.fetches), []
        for op in reversed(party.operations):
            if op in self._core or is_arithmetic(op):
                lacking = [t for t in op.outputs if t in wanted and t not in self._given]
                if all(self.tree(t) is not None for t in lacking):
                    continue
            computed.append(op)
            wanted.update(op.inputs)
        return computed[::-1]

    def _late(self, operations: Sequence[Operation]) -> set[Operation]:
        late: set[Operation] = set()
        for op in operations:
            for tensor in op.inputs:
                is_read = not isinstance(tensor, Variable) and self.tree(tensor) is not None
                if tensor not in self._given and (is_read or tensor.op in late):
                    late.add(op)
        return late

    def _part(self, op: Operation) -> Any:
        if not isinstance(op.fn, Part) or list(nest.tensors(op.args[1:])):
            return None
        whole = op.args[0]
        tree = self.tree(whole) if isinstance(whole, Tensor) else None
        if tree is None or isinstance(tree, Leaf):
            return None
        values = {whole: release(tree)}
        evaluate(ready([op]), lambda name, old, new: new, values, {})
        part = hold(values[op.outputs[0]])
        is_made_of_leaves = all(isinstance(leaf, Leaf) for leaf in jax.tree.leaves(part))
        return part if is_made_of_leaves else None


def _signature_of(given: Sequence[Any]) -> tuple[Any, ...]:
    try:
        return tuple([(it.shape, it.dtype, getattr(it, "weak_type", False)) for it in given])
    except AttributeError:
        leaves, structure = jax.tree.flatten(list(given))
        return (structure, *map(_form, leaves))


def _form(leaf: Any) -> tuple[Any, Any, bool]:
    dtype = getattr(leaf, "dtype", type(leaf))
    return getattr(leaf, "shape", ()), dtype, getattr(leaf, "weak_type", False)


class JaxBody(BoundBody):
    """Computes ``body``: parts before the core, the core if there is one, and parts after it.

    If the first run with values of some shapes takes the core alone, later ones call it at once.
    """

    def __init__(
        self,
        engine: Engine,
        body: Body,
        structures: Mapping[Variable, Any],
        shared: BoundedCache[Any, Any],
    ) -> None:
        super().__init__(self._run)
        self._engine = engine
        self._body = body
        self._structures = structures
        self._shared = shared
        sizes = [structures[v].num_leaves for v in (*body.assigned, *body.kept)]
        ends = list(itertools.accumulate(sizes, initial=0))
        reads = zip((*body.assigned, *body.kept), ends, ends[1:], strict=False)
        self._spans = {variable: slice(start, end) for variable, start, end in reads}
        self._leaves = ends[-1]
        self._core: CoreExecutable | None = None
        core_body, party = core_of(body), stepping_party(body)
        if core_body is not None and party is not None:
            self._core = self._executable(CoreExecutable, core_body, party.name)
            self.compilation = self._core.traces
        self._shardings: tuple[Any, ...] = ()
        self._forms: list[str] = []
        self._bindings: BoundedCache[Any, Binding] = BoundedCache()
        self._binding: Binding | None = None
        self._pick: Callable[[Any], Sequence[Any]] = tuple

    def fetched(self, new: list[Any], rest: Any) -> Sequence[Any]:
        if type(rest) is list:  # of a run that took more than the core
            return rest
        binding = self._binding
        assert binding is not None, "the core alone was called"
        if not binding.indices:
            return ()
        if binding.layout in rest:
            return self._pick(rest[binding.layout])
        # JAX has traced the core anew.
        assert self._core is not None
        result = self._core.result(new, rest)
        values = self._bound_again(binding, result).read(result)
        return [values[t] for t in self._body.fetches]

    def explain(self, error: Exception, args: Sequence[Any]) -> None:
        given, tensors, forms = args[self._leaves :], self._body.given, self._forms
        note_failure(error, [it for v in self._body.assigned for it in args[self._spans[v]]])
        check_given(error, tensors, given)
        if self._core is not None and self._core.traced.body.given == tensors:
            forms = self._core.forms
        for tensor, before, now in zip(tensors, forms, map(form_of, given), strict=False):
            if before != now:
                add_note(
                    error, f"{tensor.name!r} is given {now} here, and was given {before} before"
                )

    def log(self) -> None:
        if self._core is not None:
            self._core.log()

    def _run(self, *args: Any) -> list[Any]:
        given, core = args[self._leaves :], self._core
        signature = _signature_of(given)
        settled: Sequence[Any] = args
        binding = self._bindings.get(signature)
        if binding is None:
            binding, settled = self._bind(args, given)
            self._bindings[signature] = binding
            self._forms = [*map(form_of, given)]
        values: dict[Tensor, Any] = dict(zip(self._body.given, given, strict=True))
        assigned: dict[Variable, Any] = {}
        core_args = [] if core is None else self._args_of(core.traced, settled, values)
        self._compute(binding.before, settled, values, assigned)
        if core is not None:
            step = core.step(binding.wide_for is not None, self._shardings)
            *new, by_layout = step(*core_args, *core.traced.placed)
            if core.traces.since is not None:
                core.log(binding.wide_for)
            assigned |= core.traced.by_variable(new)
            try:
                result = core.result(new, by_layout)
                if result.layout.number != binding.layout:
                    binding = self._bound_again(binding, result)
                values.update(binding.read(result))
                self._compute(binding.after, settled, values, assigned)
            except BaseException as error:
                if self._body.donate:
                    raise AssignedError(assigned, error) from error
                raise
            self._call_core_at_once(core, binding, given)
        for tensor in binding.held:
            values[tensor] = release(values[tensor])
        results = [leaf for v in self._body.assigned for leaf in assigned[v]]
        return [*results, [values[t] for t in self._body.fetches]]

    def _call_core_at_once(
        self, core: CoreExecutable, binding: Binding, given: Sequence[Any]
    ) -> None:
        body, of_core = self._body, core.traced.body
        if binding.indices is None or (body.kept, body.given) != (of_core.kept, of_core.given):
            return
        call: Callable[..., list[Any]] = core.step(binding.wide_for is not None, self._shardings)
        jitted, placed, leaves = call, core.traced.placed, self._leaves
        if placed:

            def call(*args: Any) -> list[Any]:
                return jitted(*args, *placed)

        if given and binding.indices:  # else nothing depends on what is given
            signature, placed_call = _signature_of(given), call

            def call(*args: Any) -> list[Any]:
                if _signature_of(args[leaves:]) != signature:
                    return self._run(*args)
                return placed_call(*args)

        first, *others = binding.indices or [0]
        # An itemgetter of one index returns no tuple.
        self._pick = itemgetter(first, *others) if others else lambda arrays: (arrays[first],)
        self._binding, self.step = binding, call

    def _executable(
        self, kind: Callable[[FlatBody, str], Executable], body: Body, party: str
    ) -> Executable:
        # Sessions of one graph begin with equal structures, unless a function makes others.
        key = kind, body, *[self._structures[v] for v in (*body.assigned, *body.kept)]
        executable: Executable = self._shared.get_or_make(
            key, lambda: kind(FlatBody(self._engine, body, self._structures), party)
        )
        return executable

    def _args_of(
        self, traced: FlatBody, args: Sequence[Any], values: Mapping[Tensor, Any]
    ) -> list[Any]:
        leaves = [leaf for variable in traced.reads for leaf in args[self._spans[variable]]]
        return [*leaves, *[values[t] for t in traced.body.given]]

    def _compute(
        self,
        parts: Iterable[PartExecutable],
        args: Sequence[Any],
        values: dict[Tensor, Any],
        assigned: dict[Variable, Any],
        compute: Callable[[PartExecutable, Sequence[Any]], Any] = PartExecutable.__call__,
    ) -> None:
        for part in parts:
            traced = part.traced
            try:
                results = compute(part, self._args_of(traced, args, values))
            except Exception as error:
                note_failure(error, [])
                if part.party != CALLER:
                    add_note(error, f"in what {part.party} asks for")
                raise
            assigned |= traced.by_variable(results)
            values.update(zip(traced.body.fetches, results[traced.new_leaves :], strict=True))

    def _bind(self, args: Sequence[Any], given: Sequence[Any]) -> tuple[Binding, Sequence[Any]]:
        """Return the binding of a run, and its arguments, settled.

        It traces everything: errors come before anything is computed.
        """
        core, result = self._core, None
        values: dict[Tensor, Any] = dict(zip(self._body.given, given, strict=True))
        if core is not None:
            settled = core.settled(self._args_of(core.traced, args, values))
            self._shardings = shardings_of(settled[: core.traced.new_leaves])
            by_variable, now = core.traced.by_variable(settled), list(args)
            for variable, leaves in by_variable.items():
                now[self._spans[variable]] = leaves
            result, args = core.shapes(settled), now
        binding = self._divided(result)
        if result is not None:
            values.update(binding.read(result))
        parts = (*binding.before, *binding.after)
        self._compute(parts, args, values, {}, PartExecutable.traced_shapes)
        held = frozenset(t for t in self._body.fetches if is_held(values[t]))
        return replace(binding, held=held), args

    def _divided(self, shapes: CoreResult | None) -> Binding:
        divider = _Divider(self._body, self._core, shapes)
        small = 0 if shapes is None else shapes.layout.small
        before: list[PartExecutable] = []
        after: list[PartExecutable] = []
        trees: dict[Tensor, Any] = {}
        wide_for: str | None = None
        for party in self._body.parties:
            early, late = divider.divide(party)
            for parts, part in ((before, early), (after, late)):
                if not part.is_empty:
                    parts.append(self._executable(PartExecutable, part, party.name))
            read = {tensor: divider.tree(tensor) for tensor in (*party.fetches, *late.given)}
            read = {tensor: tree for tensor, tree in read.items() if tree is not None}
            indices = [it.index for it in jax.tree.leaves([*read.values()]) if not it.is_new]
            if wide_for is None and max(indices, default=-1) >= small:
                wide_for = party.name
            trees.update(read)
        only_reads = not before and not after and all(type(it) is Leaf for it in trees.values())
        return Binding(
            before=before,
            after=after,
            trees=trees,
            wide_for=wide_for,
            layout=0 if shapes is None else shapes.layout.number,
            indices=[trees[t].index for t in self._body.fetches] if only_reads else None,
        )

    def _bound_again(self, binding: Binding, result: CoreResult) -> Binding:
        """Return the binding of what the core, traced anew, has returned."""
        self._bindings.clear()
        again = replace(self._divided(result), held=binding.held)
        if (again.wide_for and not binding.wide_for) or again.before != binding.before:
            raise RuntimeError(
                "the values of a variable have other shapes in this session of the graph than in "
                "an earlier one: make a graph for each"
            )
        return again

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
    forms_of,
    note_failure,
    note_new_forms,
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
Executables = Callable[[Body, str], PartExecutable]


@dataclass(frozen=True)
class Binding:
    """The executables of one run, and where the values are that it passes on.

    Attributes:
        before: Those that run before the core, on the same values of variables.
        after: Those that run after it, on what it returns.
        trees: What is read of the core: the value of each tensor, held, with ``Leaf``s in it.
        wide_for: The party for which the core returns more than it does in every run, or None.
        layout: The number of the layout of the core.
        held: The fetches of the run whose values are to be released.
        indices: Where the fetches of the run are among the arrays of the core, if each is one of
            these, and there is nothing else to do.
    """

    before: list[PartExecutable]
    after: list[PartExecutable]
    trees: Mapping[Tensor, Any]
    wide_for: str | None
    layout: int
    indices: list[int] | None
    held: frozenset[Tensor] = frozenset()

    def read(self, arrays: Sequence[Any], new: Sequence[Any]) -> dict[Tensor, Any]:
        """Return what is read of the core, given what it returns."""

        def array(leaf: Leaf) -> Any:
            return new[leaf.index] if leaf.is_new else arrays[leaf.index]

        return {tensor: jax.tree.map(array, tree) for tensor, tree in self.trees.items()}


def bind(
    body: Body, core: CoreExecutable | None, shapes: CoreResult | None, executables: Executables
) -> Binding:
    """Divide what the parties of ``body`` ask for.

    Args:
        body: What the run computes.
        core: The training step in it, if any.
        shapes: What the core returns.
        executables: Returns the executable of a body, and of the party that it is made for.

    Raises:
        Exception: What taking a part out of a value raises.
    """
    divider = _Divider(body, core, shapes)
    before: list[PartExecutable] = []
    after: list[PartExecutable] = []
    trees: dict[Tensor, Any] = {}
    wide_for: str | None = None
    for party in body.parties:
        early, late = divider.divide(party)
        before += [] if early.is_empty else [executables(early, party.name)]
        after += [] if late.is_empty else [executables(late, party.name)]
        read = {tensor: divider.tree(tensor) for tensor in (*party.fetches, *late.given)}
        read = {tensor: tree for tensor, tree in read.items() if tree is not None}
        if wide_for is None and divider.takes_more(read.values()):
            wide_for = party.name
        trees.update(read)
    only_reads = not before and not after and all(type(it) is Leaf for it in trees.values())
    return Binding(
        before=before,
        after=after,
        trees=trees,
        wide_for=wide_for,
        layout=0 if shapes is None else shapes.layout.number,
        indices=[trees[t].index for t in body.fetches] if only_reads else None,
    )


class _Divider:
    """Finds out where the values are that the parties of one run ask for."""

    def __init__(self, body: Body, core: CoreExecutable | None, shapes: CoreResult | None) -> None:
        self._body = body
        self._given = set(body.given)
        self._small = 0 if shapes is None else shapes.layout.small
        self._trees: dict[Tensor, Any] = {} if shapes is None else dict(shapes.layout.trees)
        in_core = None if core is None else core.traced.body
        self._core = set() if in_core is None else set(in_core.operations)
        #: The variables whose old values are gone when the core has run.
        self._donated = set(in_core.assigned) if in_core is not None and in_core.donate else set()

    def tree(self, tensor: Tensor) -> Any:
        """Return the value with ``Leaf``s in it, if the core returns it or what holds it."""
        if tensor in self._given:
            return None
        if tensor not in self._trees:
            self._trees[tensor] = self._part(tensor.op)
        return self._trees[tensor]

    def takes_more(self, trees: Iterable[Any]) -> bool:
        """Return whether reading ``trees`` takes arrays that are not returned in every run."""
        leaves = jax.tree.leaves(list(trees))
        return any(not leaf.is_new and leaf.index >= self._small for leaf in leaves)

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
        copied = {t for t in party.fetches if self._has_new(t)}
        early_fetches = made_early & late_inputs.union(party.fetches) | unread | old
        late_fetches = made_late & set(party.fetches) | copied
        passed = {t for t in late_inputs if isinstance(t, Variable) and self.tree(t) is not None}
        after = replace(self._body, given=(*self._body.given, *old, *passed))
        return part_of(self._body, early, early_fetches), part_of(
            after, [op for op in operations if op in late], late_fetches
        )

    def _computed(self, party: Party) -> list[Operation]:
        """Return the operations that the core does not compute, or not for others to read."""
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

    def _has_new(self, tensor: Tensor) -> bool:
        tree = self.tree(tensor)
        return tree is not None and any(leaf.is_new for leaf in jax.tree.leaves(tree))


def signature_of(given: Sequence[Any]) -> tuple[Any, ...]:
    """Return a key that is equal for values of the same shapes and dtypes, weak or not."""
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

    Which executables that takes depends on what is fetched, and on the shapes of what is given. The
    first run finds out. If it takes nothing but the core, later runs call that at once.

    Args:
        engine: The engine.
        body: What to compute.
        structures: The structures of the variables.
        shared: The executables of the graph.
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
        self._core = self._core_executable()
        if self._core is not None:
            self.compilation = self._core.traces
        self._shardings: tuple[Any, ...] = ()  # of the new values
        self._forms: list[str] = []  # of what was last given in another form
        self._bindings: BoundedCache[Any, Binding] = BoundedCache()
        # The binding of the runs that call the core at once, and what takes the fetches out.
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
        return self._read_again(binding, new, rest)

    def explain(self, error: Exception, args: Sequence[Any]) -> None:
        given, tensors, forms = args[self._leaves :], self._body.given, self._forms
        note_failure(error, [it for v in self._body.assigned for it in args[self._spans[v]]])
        check_given(error, tensors, given)
        if self._core is not None and self._core.traced.body.given == tensors:
            forms = self._core.forms
        note_new_forms(error, tensors, forms, forms_of(given))

    def log(self) -> None:
        if self._core is not None:
            self._core.log()

    def _run(self, *args: Any) -> list[Any]:
        """Make the run, as ``step``."""
        given = args[self._leaves :]
        signature = signature_of(given)
        settled: Sequence[Any] = args
        binding = self._bindings.get(signature)
        if binding is None:
            binding, settled = self._bind(args, given)
            self._bindings[signature] = binding
            self._forms = forms_of(given)
        values: dict[Tensor, Any] = dict(zip(self._body.given, given, strict=True))
        assigned: dict[Variable, Any] = {}
        self._compute(binding.before, settled, values, assigned)
        if self._core is not None:
            *new, by_layout = self._run_core(self._core, binding, settled)
            assigned |= self._core.traced.by_variable(new)
            ((layout, arrays),) = by_layout.items()
            try:
                if layout != binding.layout:
                    traced = CoreResult(new, arrays, self._core.layouts[layout])
                    binding = self._bound_again(binding, traced)
                values.update(binding.read(arrays, new))
                self._compute(binding.after, settled, values, assigned)
            except BaseException as error:
                if self._body.donate:
                    raise AssignedError(assigned, error) from error
                raise
            self._call_core_at_once(self._core, binding, given)
        for tensor in binding.held:
            values[tensor] = release(values[tensor])
        results = [leaf for v in self._body.assigned for leaf in assigned[v]]
        return [*results, [values[t] for t in self._body.fetches]]

    def _call_core_at_once(
        self, core: CoreExecutable, binding: Binding, given: Sequence[Any]
    ) -> None:
        """Let the next run with such values call the core, if there is nothing else to do."""
        body, in_core = self._body, core.traced.body
        if binding.indices is None or (body.kept, body.given) != (in_core.kept, in_core.given):
            return
        call: Callable[..., list[Any]] = self._step_of(core, binding)
        jitted, placed, leaves = call, core.traced.placed, self._leaves
        if placed:

            def call(*args: Any) -> list[Any]:
                return jitted(*args, *placed)

        if given and binding.indices:  # else nothing depends on what is given
            signature, placed_call = signature_of(given), call

            def call(*args: Any) -> list[Any]:
                if signature_of(args[leaves:]) != signature:
                    return self._run(*args)
                return placed_call(*args)

        first, *others = binding.indices or [0]
        # Of one index alone an itemgetter returns no tuple.
        self._pick = itemgetter(first, *others) if others else lambda arrays: (arrays[first],)
        self._binding, self.step = binding, call

    def _read_again(
        self, binding: Binding, new: list[Any], by_layout: Mapping[int, Sequence[Any]]
    ) -> list[Any]:
        """Return the fetches among what the core has returned after JAX has traced it anew."""
        assert self._core is not None
        ((layout, arrays),) = by_layout.items()
        again = self._bound_again(binding, CoreResult(new, [*arrays], self._core.layouts[layout]))
        values = again.read(arrays, new)
        return [values[t] for t in self._body.fetches]

    def _core_executable(self) -> CoreExecutable | None:
        core_body, party = core_of(self._body), stepping_party(self._body)
        if core_body is None or party is None:
            return None
        return self._executable(CoreExecutable, core_body, party.name)

    def _part_executable(self, body: Body, party: str) -> PartExecutable:
        return self._executable(PartExecutable, body, party)

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
        """Return the arguments of an executable, given those of the run."""
        leaves = [leaf for variable in traced.reads for leaf in args[self._spans[variable]]]
        return [*leaves, *[values[t] for t in traced.body.given]]

    def _run_core(self, core: CoreExecutable, binding: Binding, args: Sequence[Any]) -> Any:
        given = dict(zip(self._body.given, args[self._leaves :], strict=True))
        step = self._step_of(core, binding)
        results = step(*self._args_of(core.traced, args, given), *core.traced.placed)
        if core.traces.since is not None:
            core.log(binding.wide_for)
        return results

    def _step_of(self, core: CoreExecutable, binding: Binding) -> Callable[..., list[Any]]:
        step: Callable[..., list[Any]] = core.step(
            wide=binding.wide_for is not None, shardings=self._shardings
        )
        return step

    def _compute(
        self,
        parts: Iterable[PartExecutable],
        args: Sequence[Any],
        values: dict[Tensor, Any],
        assigned: dict[Variable, Any],
    ) -> None:
        for part in parts:
            traced = part.traced
            try:
                results = part(self._args_of(traced, args, values))
            except Exception as error:
                _note_party(error, part.party)
                raise
            assigned |= traced.by_variable(results)
            values.update(zip(traced.body.fetches, results[traced.new_leaves :], strict=True))

    def _bind(self, args: Sequence[Any], given: Sequence[Any]) -> tuple[Binding, Sequence[Any]]:
        """Return the binding of a run, and its arguments as the step settles them.

        It traces everything, so that errors come before anything is computed.
        """
        core, traced = self._core, None
        values: dict[Tensor, Any] = dict(zip(self._body.given, given, strict=True))
        if core is not None:
            settled = core.settled(self._args_of(core.traced, args, values))
            self._shardings = shardings_of(settled[: core.traced.new_leaves])
            by_variable, now = core.traced.by_variable(settled), list(args)
            for variable, leaves in by_variable.items():
                now[self._spans[variable]] = leaves
            traced, args = core.shapes(settled), now
        binding = bind(self._body, core, traced, self._part_executable)
        if traced is not None:
            values.update(binding.read(traced.arrays, traced.new))
        for part in (*binding.before, *binding.after):
            try:
                shapes = part.shapes(self._args_of(part.traced, args, values))
            except Exception as error:
                _note_party(error, part.party)
                raise
            fetched = shapes[part.traced.new_leaves :]
            values.update(zip(part.traced.body.fetches, fetched, strict=True))
        held = frozenset(t for t in self._body.fetches if is_held(values[t]))
        return replace(binding, held=held), args

    def _bound_again(self, binding: Binding, traced: CoreResult) -> Binding:
        """Return the binding of what the core has returned: JAX has traced it anew."""
        self._bindings.clear()
        again = bind(self._body, self._core, traced, self._part_executable)
        again = replace(again, held=binding.held)
        if (again.wide_for and not binding.wide_for) or again.before != binding.before:
            raise RuntimeError(
                "the values of a variable have other shapes in this session of the graph than in "
                "an earlier one: make a graph for each"
            )
        return again


def _note_party(error: Exception, party: str) -> None:
    """Note on ``error`` for whom something was computed, if for a hook."""
    note_failure(error, [])
    if party != CALLER:
        add_note(error, f"in what {party} asks for")

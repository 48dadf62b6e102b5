"""A run of the jax engine: the core, which is a training step, and parts for each party."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import jax

from runhooks.engines.jax.executables import (
    CoreExecutable,
    PartExecutable,
    Traced,
    check_given,
    forms_of,
    note_failure,
    note_new_forms,
)
from runhooks.engines.jax.held import Leaf, arrays_of, hold, is_held, release
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import AssignedError, BoundedCache, Compiled, Engine, FlatRun
from runhooks.graph.evaluate import evaluate
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
        leaves = jax.tree.leaves(new) if self.trees else []
        return {t: arrays_of(tree, arrays, leaves) for t, tree in self.trees.items()}


def bind(
    body: Body, core: CoreExecutable | None, shapes: Traced | None, executables: Executables
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

    def __init__(self, body: Body, core: CoreExecutable | None, shapes: Traced | None) -> None:
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
        evaluate([op], values, {}, lambda name, old, new: new)
        part = hold(values[op.outputs[0]])
        is_made_of_leaves = all(isinstance(leaf, Leaf) for leaf in jax.tree.leaves(part))
        return part if is_made_of_leaves else None

    def _has_new(self, tensor: Tensor) -> bool:
        tree = self.tree(tensor)
        return tree is not None and any(leaf.is_new for leaf in jax.tree.leaves(tree))


class FlatStep(FlatRun):
    """Calls a jitted step of ``core``.

    Args:
        core: The step.
        step: What calls it.
        takes: As for ``FlatRun``.
    """

    def __init__(
        self,
        core: CoreExecutable,
        step: Callable[..., list[Any]],
        takes: Callable[[Sequence[Any]], bool] | None = None,
    ) -> None:
        placed = core.traced.placed
        call = (lambda *args: step(*args, *placed)) if placed else step
        super().__init__(call, core.traces, takes)
        self._core = core

    def explain(self, error: Exception, args: Sequence[Any]) -> None:
        body = self._core.traced.body
        given = args[len(self._core.traced.reads) :]
        note_failure(error, args[: len(body.assigned)])
        check_given(error, body.given, given)
        note_new_forms(error, body.given, self._core.forms, forms_of(given))

    def log(self) -> None:
        self._core.log()


class FetchingStep(FlatStep):
    """Calls a jitted step of ``core``, of whose results some are fetched.

    Args:
        core: The step.
        binding: What it returns for ``given``.
        given: Values like those that it will be given.
        read_again: Returns the fetches if JAX has traced the step anew.
    """

    def __init__(
        self,
        core: CoreExecutable,
        binding: Binding,
        given: Sequence[Any],
        read_again: Callable[[Binding, list[Any], Any], list[Any]],
    ) -> None:
        assert binding.indices is not None, "else there is more to do"
        signature = signature_of(given)
        takes = (lambda given: signature_of(given) == signature) if given else None
        super().__init__(core, core.step(), takes)
        self._binding, self._number = binding, binding.layout
        # Of one index alone it would return no tuple.
        self._pick = itemgetter(*binding.indices, slice(0, 0))
        self._read_again = read_again

    def fetched(self, new: list[Any], rest: Any) -> Sequence[Any]:
        if self._number in rest:
            return self._pick(rest[self._number])  # type: ignore[no-any-return]
        return self._read_again(self._binding, new, rest)


def signature_of(given: Sequence[Any]) -> tuple[Any, ...]:
    """Return a key that is equal for values of the same shapes and dtypes."""
    try:
        return tuple([(value.shape, value.dtype) for value in given])
    except AttributeError:
        leaves, structure = jax.tree.flatten(list(given))
        forms = [(getattr(it, "shape", ()), getattr(it, "dtype", type(it))) for it in leaves]
        return (structure, *forms)


def compile_run(engine: Engine, body: Body, shared: BoundedCache[Any, Any]) -> Compiled:
    """Return a function that computes ``body`` with executables that are kept in ``shared``."""
    core = _core(engine, body, shared)
    if core is not None and not body.fetches and core.traced.body.operations == body.operations:
        return _StepAlone(core)
    return _Run(engine, body, core, shared)


def flat_run(
    compiled: Compiled, variables: dict[Variable, Any], given: Sequence[Any]
) -> FlatRun | None:
    """Return the run of ``compiled`` with these arguments, as the engine's ``flat_run``."""
    if isinstance(compiled, _StepAlone):
        return compiled.flat
    return compiled.flat_run(variables, given) if isinstance(compiled, _Run) else None


def _core(engine: Engine, body: Body, shared: BoundedCache[Any, Any]) -> CoreExecutable | None:
    core_body, party = core_of(body), stepping_party(body)
    if core_body is None or party is None:
        return None
    core: CoreExecutable = shared.get_or_make(
        ("core", core_body), lambda: CoreExecutable(engine, core_body, party.name)
    )
    return core


class _StepAlone:
    """Computes a step of which nothing is fetched, as in an off-step.

    Attributes:
        flat: The run as the engine's ``flat_run`` returns it.
    """

    def __init__(self, core: CoreExecutable) -> None:
        self._core = core
        self._reads = core.traced.reads
        self.flat = FlatStep(core, core.step())

    def __call__(self, variables: dict[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
        flat, args = self.flat, [*given]
        try:
            self._core.settle(variables, given)
            args = [*[variables[v] for v in self._reads], *given]
            results = flat.step(*args)
        except Exception as error:
            flat.explain(error, args)
            raise
        if flat.compilation.since is not None:
            flat.log()
        return results


class _Run:
    """Computes ``body``: parts before the core, the core if there is one, and parts after it.

    Which executables that takes depends on what is fetched, and on the shapes of what is given.
    """

    def __init__(
        self,
        engine: Engine,
        body: Body,
        core: CoreExecutable | None,
        shared: BoundedCache[Any, Any],
    ) -> None:
        self._engine = engine
        self._body = body
        self._core = core
        self._shared = shared
        core_given = () if core is None else core.traced.body.given
        self._places = [body.given.index(tensor) for tensor in core_given]
        self._session = 0
        self._forms: list[str] = []  # of what was last given in another form
        self._bindings: BoundedCache[Any, Binding] = BoundedCache()

    def __call__(self, variables: dict[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
        binding = self._binding(variables, given)
        values: dict[Tensor, Any] = {}
        assigned: dict[Variable, Any] = {}
        if binding.indices is None:
            values.update(zip(self._body.given, given, strict=True))
            self._compute(binding.before, variables, values, assigned)
        if self._core is not None:
            *new, by_layout = self._run_core(self._core, binding, variables, given)
            ((layout, arrays),) = by_layout.items()
            if binding.indices is not None and layout == binding.layout:
                return [*new, *[arrays[i] for i in binding.indices]]
            assigned.update(zip(self._core.traced.body.assigned, new, strict=True))
            try:
                if layout != binding.layout:
                    values.update(zip(self._body.given, given, strict=True))
                    traced = Traced(new, arrays, self._core.layouts[layout])
                    binding = self._bound_again(binding, traced)
                values.update(binding.read(arrays, new))
                self._compute(binding.after, variables, values, assigned)
            except BaseException as error:
                if self._body.donate:
                    raise AssignedError(assigned, error) from error
                raise
        results = [assigned[v] for v in self._body.assigned]
        for tensor in binding.held:
            values[tensor] = release(values[tensor])
        return results + [values[t] for t in self._body.fetches]

    def flat_run(self, variables: dict[Variable, Any], given: Sequence[Any]) -> FlatRun | None:
        """Return the run with these arguments, if it takes nothing but the step."""
        binding, core, body = self._binding(variables, given), self._core, self._body
        if core is None or binding.indices is None or binding.wide_for is not None:
            return None
        in_core = core.traced.body
        if (body.assigned, body.kept, body.given) != (
            in_core.assigned,
            in_core.kept,
            in_core.given,
        ):
            return None
        return FetchingStep(core, binding, given, self._read_again)

    def _read_again(
        self, binding: Binding, new: list[Any], by_layout: Mapping[int, Sequence[Any]]
    ) -> list[Any]:
        """Return the fetches among what the core has returned after JAX has traced it anew."""
        assert self._core is not None
        ((layout, arrays),) = by_layout.items()
        try:
            again = self._bound_again(binding, Traced(new, [*arrays], self._core.layouts[layout]))
            values = again.read(arrays, new)
            return [values[t] for t in self._body.fetches]
        except BaseException as error:
            raise AssignedError(dict(zip(self._body.assigned, new, strict=True)), error) from error

    def _run_core(
        self,
        core: CoreExecutable,
        binding: Binding,
        variables: dict[Variable, Any],
        given: Sequence[Any],
    ) -> Any:
        args = core.traced.args(variables, [given[i] for i in self._places])
        step = core.step(wide=binding.wide_for is not None)
        try:
            results = step(*args)
        except Exception as error:
            note_failure(error, [variables[v] for v in core.traced.body.assigned])
            raise
        if core.traces.since is not None:
            core.log(binding.wide_for)
        return results

    def _compute(
        self,
        parts: Iterable[PartExecutable],
        variables: dict[Variable, Any],
        values: dict[Tensor, Any],
        assigned: dict[Variable, Any],
    ) -> None:
        for part in parts:
            body = part.traced.body
            with noting_party(part.party):
                results = part(variables, [values[t] for t in body.given])
            assigned.update(zip(body.assigned, results))  # noqa: B905 - then come the fetches
            values.update(zip(body.fetches, results[len(body.assigned) :], strict=True))

    def _binding(self, variables: dict[Variable, Any], given: Sequence[Any]) -> Binding:
        # The variables of one session keep their shapes; another may have others.
        if self._session != id(variables):
            self._session = id(variables)
            self._bindings.clear()
        signature = signature_of(given)
        binding = self._bindings.get(signature)
        if binding is None:
            try:
                binding = self._bindings[signature] = self._bind(variables, given)
            except Exception as error:
                check_given(error, self._body.given, given)
                note_new_forms(error, self._body.given, self._forms, forms_of(given))
                raise
            self._forms = forms_of(given)
        return binding

    def _bind(self, variables: dict[Variable, Any], given: Sequence[Any]) -> Binding:
        """Trace everything, so that errors come before anything is computed."""
        core = self._core
        traced = None
        if core is not None:
            in_core = [given[i] for i in self._places]
            try:
                core.settle(variables, in_core)
                traced = core.shapes(core.traced.args(variables, in_core))
            except Exception as error:
                note_failure(error, [])
                raise
        binding = bind(self._body, core, traced, self._executable)
        values: dict[Tensor, Any] = dict(zip(self._body.given, given, strict=True))
        if traced is not None:
            values.update(binding.read(traced.arrays, traced.new))
        for part in (*binding.before, *binding.after):
            body = part.traced.body
            with noting_party(part.party):
                shapes = part.shapes(variables, [values[t] for t in body.given])
            values.update(zip(body.fetches, shapes[len(body.assigned) :], strict=True))
        held = frozenset(t for t in self._body.fetches if is_held(values[t]))
        return replace(binding, held=held)

    def _bound_again(self, binding: Binding, traced: Traced) -> Binding:
        """Return the binding of what the core has returned: JAX has traced it anew."""
        self._bindings.clear()
        again = bind(self._body, self._core, traced, self._executable)
        again = replace(again, held=binding.held)
        if (again.wide_for and not binding.wide_for) or again.before != binding.before:
            raise RuntimeError(
                "the values of a variable have other shapes in this session of the graph than in "
                "an earlier one: make a graph for each"
            )
        return again

    def _executable(self, body: Body, party: str) -> PartExecutable:
        executable: PartExecutable = self._shared.get_or_make(
            ("part", body), lambda: PartExecutable(self._engine, body, party)
        )
        return executable


class noting_party:  # noqa: N801 - used like a function
    """Note on any error out of the ``with`` block for whom something is computed, if for a hook."""

    __slots__ = ("_party",)

    def __init__(self, party: str) -> None:
        self._party = party

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        if isinstance(error, Exception):
            note_failure(error, [])
            if self._party != CALLER:
                add_note(error, f"in what {self._party} asks for")

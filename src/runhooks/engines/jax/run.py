"""A run of the jax engine: the core, which is a training step, and parts for each party."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runhooks.engines.jax.binding import Binding, bind
from runhooks.engines.jax.executables import CoreExecutable, PartExecutable, Traced
from runhooks.engines.jax.failures import check_given, forms_of, note_failure, note_new_forms
from runhooks.engines.jax.flat_step import FetchingStep, FlatStep, signature_of
from runhooks.engines.jax.held import is_held, release
from runhooks.engines.jax.kept_buffers import JaxKeptBuffers
from runhooks.errors import add_note
from runhooks.graph.bounded_cache import BoundedCache
from runhooks.graph.core import core_of, stepping_party
from runhooks.graph.engine import AssignedError, Compiled, Engine, FlatRun
from runhooks.graph.plan import CALLER, Body
from runhooks.graph.tensor import Tensor, Variable


def compile_run(engine: Engine, body: Body, shared: BoundedCache[Any, Any]) -> Compiled:
    """Return a function that computes ``body`` with executables that are kept in ``shared``."""
    core = _core(engine, body, shared)
    if core is not None and not body.fetches and core.traced.body.operations == body.operations:
        return _StepAlone(core)
    return _Run(engine, body, core, shared)


def keeping_run(
    engine: Engine, body: Body, shared: BoundedCache[Any, Any], kept: JaxKeptBuffers
) -> Compiled:
    """Return a function as ``compile_run`` does, which leaves the buffers in ``kept`` alone."""
    run = _Run(engine, body, _core(engine, body, shared), shared, kept)

    def keeping(variables: dict[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
        results = run(variables, given)
        kept.settle(body.assigned)
        return results

    return keeping


def flat_run(
    compiled: Compiled, variables: dict[Variable, Any], given: Sequence[Any]
) -> FlatRun | None:
    """Return the run of ``compiled`` with these arguments, as the engine's ``flat_run``."""
    if isinstance(compiled, _StepAlone):
        return compiled.flat
    return compiled.flat_run(variables, given) if isinstance(compiled, _Run) else None


def warm_up(
    engine: Engine,
    body: Body,
    shared: BoundedCache[Any, Any],
    variables: dict[Variable, Any],
    given: Sequence[Any],
) -> None:
    """Compile the executables that ``compile_run`` will use with these arguments."""
    _Run(engine, body, _core(engine, body, shared), shared).compile(variables, given)


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
        kept: JaxKeptBuffers | None = None,
    ) -> None:
        self._engine = engine
        self._kept = kept
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

    def compile(self, variables: dict[Variable, Any], given: Sequence[Any]) -> None:
        """Compile all executables that a run with these arguments takes."""
        binding = self._binding(variables, given)
        values: dict[Tensor, Any] = dict(zip(self._body.given, given, strict=True))
        for part in binding.before:
            values.update(self._compiled_part(part, variables, values))
        if self._core is not None:
            args = self._core.traced.args(variables, [given[i] for i in self._places])
            traced = self._core.compile(args, binding.items, binding.wide_for)
            values.update(binding.read(traced.arrays, traced.new))
        for part in binding.after:
            values.update(self._compiled_part(part, variables, values))

    def _compiled_part(
        self,
        part: PartExecutable,
        variables: dict[Variable, Any],
        values: Mapping[Tensor, Any],
    ) -> dict[Tensor, Any]:
        body = part.traced.body
        with noting_party(part.party):
            results = part.compile(variables, [values[t] for t in body.given])
        return dict(zip(body.fetches, results[len(body.assigned) :], strict=True))

    def _run_core(
        self,
        core: CoreExecutable,
        binding: Binding,
        variables: dict[Variable, Any],
        given: Sequence[Any],
    ) -> Any:
        args = core.traced.args(variables, [given[i] for i in self._places])
        step = core.step(binding.items, wide=binding.wide_for is not None)
        try:
            if self._kept is not None and binding.wide_for is None:
                results = self._kept.run(step, core.traced.body.assigned, args)
            else:
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
            traced = traced.shapes_taking(binding.items)
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
        if (
            (again.wide_for and not binding.wide_for)
            or again.before != binding.before
            or again.items != binding.items
        ):
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

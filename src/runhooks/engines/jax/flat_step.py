"""``FlatStep``: a jitted step that is called with the flat list of values that it has returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import jax

from runhooks.engines.jax.binding import Binding
from runhooks.engines.jax.executables import CoreExecutable
from runhooks.engines.jax.failures import check_given, forms_of, note_failure, note_new_forms
from runhooks.graph.engine import FlatRun


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
        super().__init__(core, core.step(binding.items), takes)
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

"""``Forms``: what the values of tensors look like, found without computing them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from runhooks.errors import add_note
from runhooks.graph.base import UNKNOWN
from runhooks.graph.engine import Engine
from runhooks.graph.initial import InitialFrom, InitialMade
from runhooks.graph.input_generators import generators_left_alone
from runhooks.graph.part import Part
from runhooks.graph.tensor import Operation, Placement, Tensor, Variable


class Forms:
    """The forms of the tensors of one graph: values with shapes and dtypes in place of arrays.

    Those of placeholders and inputs are unknown until they are noted.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[Tensor, Any] = {}

    def note(self, tensor: Tensor, form: Any) -> None:
        """Note the form of ``tensor``."""
        self._known[tensor] = form

    def of(self, tensor: Tensor) -> Any:
        """Return the form of ``tensor``, or UNKNOWN.

        Raises:
            Exception: Whatever the graph's functions raise.
        """
        if tensor not in self._known:
            form = self._form(tensor.op)
            if form is UNKNOWN:  # it may be noted later
                return UNKNOWN
            several = len(tensor.op.outputs) > 1
            for output in tensor.op.outputs:
                self._known[output] = form[output.index] if several else form
        return self._known[tensor]

    def _form(self, op: Operation) -> Any:
        if not self._engine.finds_forms:
            return UNKNOWN
        if op.assigns is not None:
            return self.of(op.assigns)
        if isinstance(op.outputs[0], Variable):
            return self._initial_form(op.outputs[0])
        if op.fn is None or op.placement is Placement.HOST:
            return UNKNOWN
        forms = {tensor: self.of(tensor) for tensor in op.inputs}
        if any(form is UNKNOWN for form in forms.values()):
            return UNKNOWN
        fn = op.fn
        if isinstance(fn, Part):
            with suppress(Exception):  # for a part of an array, which has to be computed
                return fn(*op.read_args(forms))
        try:
            with generators_left_alone():  # the run that traces it draws as the user's own would
                return self._engine.form(
                    lambda *args: fn(*op.read_args(dict(zip(forms, args, strict=True)))),
                    *forms.values(),
                )
        except Exception as error:
            add_note(error, f"in the operation {op.name!r} of the graph")
            raise

    def _initial_form(self, variable: Variable) -> Any:
        if variable.on_host:
            return self._engine.form(lambda: self._engine.integer(0))
        initial = variable.initial_value
        if isinstance(initial, InitialFrom):
            return self._engine.form(initial.fn, self.of(initial.variable))
        if callable(initial) and self._engine.is_leaf(initial):
            if not isinstance(initial, InitialMade):
                initial = variable.initial_value = InitialMade(initial)
            initial = initial.look()
        return self._engine.form(lambda: initial)

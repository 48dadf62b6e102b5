"""``StepCall``: calls the user's step in a run, and divides what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from runhooks.graph.engine import Engine
from runhooks.graph.step_result import ResultRule
from runhooks.graph.step_values import OUTPUTS, StepValues


def positional(fn: Callable[..., Any], given: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Return ``fn`` as a function that takes the arguments for all of ``given`` by position."""
    keywords = {it.name: i for i, it in enumerate(given) if it.kind is it.KEYWORD_ONLY}
    if not keywords:
        return fn
    places = [i for i, it in enumerate(given) if it.name not in keywords]

    def called(*args: Any) -> Any:
        named = {name: args[i] for name, i in keywords.items()}
        return fn(*[args[i] for i in places], **named)

    return called


class StepCall:
    """A function from the arguments of ``fn`` to its new states and a dict of its outputs.

    Args:
        fn: The user's step.
        given: The parameters of ``fn`` that are given, in the order of the arguments. Those that
            stand behind one with a default that is left alone are keyword-only.
        states: The names of those that are states.
        rule: Divides what it returns.
        values: Learns what there is in arguments and outputs.
        engine: The engine of the graph.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        given: Sequence[inspect.Parameter],
        states: Sequence[str],
        rule: ResultRule,
        values: StepValues,
        engine: Engine,
    ) -> None:
        self._fn = positional(fn, given)
        self._names = [it.name for it in given]
        self._states = [self._names.index(state) for state in states]
        self._rule = rule
        self._values = values
        self._engine = engine
        self._is_known = False  # what it returns

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        try:
            returned = self._fn(*args)
        except Exception as error:
            others = {it: args[i] for i, it in enumerate(self._names) if i not in self._states}
            self._engine.note_call(error, self._rule.step, others)
            raise
        old = [args[i] for i in self._states]
        states, outputs = self._rule.divide(returned, old)
        if not self._is_known:
            self._rule.check(returned, old, states)
            by_name = dict(zip(self._names, args, strict=True))
            self._values.learn({**by_name, OUTPUTS: outputs})
            self._is_known = True
        return *states, outputs

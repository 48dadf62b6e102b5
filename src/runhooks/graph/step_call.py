"""``StepCall``: calls the user's step in a run, and divides what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from runhooks.graph.engine import Engine
from runhooks.graph.step_result import ResultRule
from runhooks.graph.step_shortcut import Shortcut
from runhooks.graph.step_values import OUTPUTS, StepValues


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
        self._fn = fn
        names = [it.name for it in given]
        keywords = [i for i, it in enumerate(given) if it.kind is it.KEYWORD_ONLY]
        self._names = names
        self._keywords = {names[i]: i for i in keywords}
        self._positional = [i for i in range(len(names)) if i not in keywords]
        self._states = [names.index(state) for state in states]
        self._rule = rule
        self._values = values
        self._engine = engine
        self._changed: list[bool] | None = None
        self._shortcut: Shortcut | None = None

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if (divide := self._shortcut) is not None:
            returned = self._call(args) if self._keywords else self._fn(*args)
            if (divided := divide(returned)) is not None:
                return divided
            return self._divided(returned, args)
        if self._changed is None:
            self._changed = [self._engine.is_changed_in_place(args[i]) for i in self._states]
        return self._divided(self._call(args), args)

    def _divided(self, returned: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        old, changed = [args[i] for i in self._states], self._changed or []
        found = self._rule.divide(returned, old, changed)
        if not self._values.knows(OUTPUTS):
            by_name = dict(zip(self._names, args, strict=True))
            self._values.learn({**by_name, OUTPUTS: found.outputs})
        self._shortcut = self._rule.shortcut  # only once all names are known to be there
        return *found.states, found.outputs

    def _call(self, args: Sequence[Any]) -> Any:
        if not self._keywords:
            return self._fn(*args)
        keywords = {name: args[i] for name, i in self._keywords.items()}
        return self._fn(*[args[i] for i in self._positional], **keywords)

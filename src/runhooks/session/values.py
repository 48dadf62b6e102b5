"""``VariableValues``: what the variables of one session hold."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from runhooks.contract import PreparedRun
from runhooks.graph.engine import Engine
from runhooks.graph.initial import InitialFrom
from runhooks.graph.tensor import Variable


class FlatValues(PreparedRun):
    """A run that can be lent the values of variables, as flat lists in an order of its own.

    Attributes:
        assigned: The variables that it assigns.
        kept: Those that it only reads.
        values: While it is lent them, the values of ``assigned``.
        kept_values: And those of ``kept``.
    """

    __slots__ = ("assigned", "kept", "kept_values", "values")

    def __init__(
        self,
        fetches: Any,
        feed_keys: Iterable[Any],
        steps: int,
        assigned: Sequence[Variable],
        kept: Sequence[Variable],
    ) -> None:
        super().__init__(fetches, feed_keys, steps)
        self.assigned = assigned
        self.kept = kept
        self.values: list[Any] = []
        self.kept_values: list[Any] = []


class VariableValues:
    """The values of a session's variables, and the counts of its runs; ``lock`` guards them all.

    A run that is made again and again takes and gives the values as a flat list, and need not put
    them anywhere in between: it is lent them, until somebody looks at ``by_variable``.

    Attributes:
        lent: The run that is lent the values it assigns; None: no run is.
        counters: The values by variable, of which those of variables on the host are never lent;
            only the global step is.
        step_variable: The global step; None if there is none.
        step: Its value, while a run is lent the values.
        runs: The number of runs that have succeeded.
        changes: The number of successful runs that may have changed a variable.
        is_closed: Whether the session is closed.
    """

    __slots__ = (
        *("acquire", "changes", "counters", "is_closed", "lent", "lock"),
        *("release", "runs", "step", "step_variable"),
    )

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # `with lock` takes twice as long, and every run does it.
        self.acquire, self.release = self.lock.acquire, self.lock.release
        self.counters: dict[Variable, Any] = {}
        self.is_closed = False
        self.lent: FlatValues | None = None
        self.step_variable: Variable | None = None
        self.step = 0
        self.runs = self.changes = 0

    @property
    def by_variable(self) -> dict[Variable, Any]:
        """The values by variable. What is put there counts from the next run on.

        Raises:
            RuntimeError: If the session is closed.
        """
        if (lent := self.lent) is not None:
            lent.off_steps = 0
            self.counters.update(zip(lent.assigned, lent.values, strict=True))
            if self.step_variable is not None:
                self.counters[self.step_variable] = self.step
            self.lent = None
            lent.values, lent.kept_values = [], []
        self.check_open()
        return self.counters

    @property
    def global_step(self) -> int | None:
        """The global step; None if there is none. To be read without the lock."""
        if self.lent is not None:
            return None if self.step_variable is None else self.step
        return self.counters.get(self.step_variable)  # type: ignore[arg-type]

    def counter(self, variable: Variable) -> int:
        """Return the value of a variable on the host, such as the global step."""
        is_step = variable is self.step_variable and self.lent is not None
        return self.step if is_step else int(self.counters[variable])

    def initialize(self, variable: Variable, engine: Engine) -> None:
        """Give ``variable`` its initial value, if it has none."""
        values = self.by_variable
        if variable in values:
            return
        initial = variable.initial_value
        if isinstance(initial, InitialFrom):
            self.initialize(initial.variable, engine)
            initial = initial.fn(values[initial.variable])
        # A function is called; a pytree that can be called, as some models can, is a value.
        value = initial() if callable(initial) and engine.is_leaf(initial) else initial
        if not variable.on_host:
            value = engine.initial(variable.op.name, value)
        values[variable] = value

    def check_open(self) -> None:
        """Raise RuntimeError if the session is closed."""
        if self.is_closed:
            raise RuntimeError("the session is closed: create a new one")

    def lend(self, run: FlatValues) -> None:
        """Let ``run`` have the values. Raises RuntimeError if the session is closed."""
        values = self.by_variable
        run.values = [values[variable] for variable in run.assigned]
        run.kept_values = [values[variable] for variable in run.kept]
        values.update(dict.fromkeys(run.assigned))  # lest the old values be kept alive here
        if self.step_variable is not None:
            self.step = values[self.step_variable]
        self.lent = run

    def close(self) -> None:
        """Let go of all values."""
        self.lent, self.counters, self.is_closed = None, {}, True

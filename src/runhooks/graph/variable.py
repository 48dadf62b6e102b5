"""``Variable``: a value that lives in a session from run to run, and is saved in checkpoints."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import get_default_graph
from runhooks.graph.tensor import Placement, Tensor


class Variable(Tensor):
    """A value kept by each session of the graph; as a tensor, its value when a run began.

    ``initial_value``: an array, a number or a pytree of these, or a callable without arguments
    that returns one when a session needs it. Shapes, dtypes and structure stay as they are here.
    A session keeps a copy, so that the caller's arrays stay the caller's.

    With ``collections`` None it joins ``GraphKeys.GLOBAL_VARIABLES``, whose variables checkpoints
    hold, and with ``trainable`` ``GraphKeys.TRAINABLE_VARIABLES`` as well. One that is in
    ``[GraphKeys.LOCAL_VARIABLES]`` instead is not saved, and begins anew in each session.
    """

    __slots__ = ("initial_value", "on_host")

    def __init__(
        self,
        initial_value: Any | Callable[[], Any],
        name: str | None = None,
        trainable: bool = True,
        collections: Sequence[str] | None = None,
        *,
        on_host: bool = False,
    ) -> None:
        graph = get_default_graph()
        placement = Placement.HOST if on_host else Placement.ENGINE
        op = graph.add(
            "Variable", None, name="Variable" if name is None else name, placement=placement
        )
        super().__init__(op, 0)
        op.outputs = (self,)
        self.initial_value = initial_value
        #: Whether it is an integer that sessions keep on the host, as they do the global step.
        self.on_host = on_host
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
            collections += [GraphKeys.TRAINABLE_VARIABLES] if trainable else []
        for key in collections:
            graph.add_to_collection(key, self)

    def __repr__(self) -> str:
        return f"<Variable {self.name!r}>"

    def assign(self, value: Any, name: str | None = None) -> Tensor:
        """A tensor that gives the variable ``value``, and is the new value."""
        return self._assignment("Assign", lambda old, new: new, value, name)

    def assign_add(self, delta: Any, name: str | None = None) -> Tensor:
        """A tensor that adds ``delta`` to the variable, leaf by leaf, and is the new value."""
        add = operator.add if self.on_host else self.graph.engine.add
        return self._assignment("AssignAdd", add, delta, name)

    def _assignment(
        self, kind: str, fn: Callable[[Any, Any], Any], value: Any, name: str | None
    ) -> Tensor:
        op = self.graph.add(
            kind,
            fn,
            (value,),
            name=name or f"{self.op.name}/{kind}",
            placement=Placement.HOST if self.on_host else Placement.ENGINE,
            assigns=self,
        )
        return op.outputs[0]

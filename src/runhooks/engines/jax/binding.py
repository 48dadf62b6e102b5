"""``Binding``: which executables a run makes for its parties, and where its results are found."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from runhooks.engines.jax.executables import CoreExecutable, PartExecutable, Traced
from runhooks.engines.jax.held import hold, release
from runhooks.engines.jax.layout import Leaf, arrays_of
from runhooks.engines.jax.traced_body import has_arrays
from runhooks.graph import nest
from runhooks.graph.core import is_arithmetic, with_ancestors
from runhooks.graph.evaluate import evaluate
from runhooks.graph.part import Part
from runhooks.graph.plan import Body, Party, part_of
from runhooks.graph.tensor import Operation, Tensor, Variable

Executables = Callable[[Body, str], PartExecutable]


@dataclass(frozen=True)
class Binding:
    """The executables of one run, and where the values are that it passes on.

    Attributes:
        before: Those that run before the core, on the same values of variables.
        after: Those that run after it, on what it returns.
        trees: What is read of the core: the value of each tensor, held, with ``Leaf``s in it.
        items: Arithmetic on its arrays that the core computes for this run, or None.
        wide_for: The party for which the core returns more than it does in every run, or None.
        layout: The number of the layout of the core.
        held: The fetches of the run whose values are to be released.
        indices: Where the fetches of the run are among the arrays of the core, if each is one of
            these, and there is nothing else to do.
    """

    before: list[PartExecutable]
    after: list[PartExecutable]
    trees: Mapping[Tensor, Any]
    items: Body | None
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
    items = divider.take_items()
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
        items=items,
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
        self._made = {tensor for op in self._core for tensor in op.outputs}
        #: The variables whose old values are gone when the core has run.
        self._donated = set(in_core.assigned) if in_core is not None and in_core.donate else set()

    def tree(self, tensor: Tensor) -> Any:
        """Return the value with ``Leaf``s in it, if the core returns it or what holds it."""
        if tensor in self._given:
            return None
        if tensor not in self._trees:
            self._trees[tensor] = self._part(tensor.op)
        return self._trees[tensor]

    def take_items(self) -> Body | None:
        """Let the core compute items of arrays, and other arithmetic, that are asked for each time.

        What parties ask for now and then is not in it, lest each combination of them be compiled.
        """
        parties = [party for party in self._body.parties if party.is_steady and self._core]
        asked = {op for party in parties for op in party.operations}
        wanted = {tensor for party in parties for tensor in party.fetches}
        taken: dict[Operation, None] = {}
        for op in self._body.operations:
            if op in asked and self._is_item(op, taken):
                taken[op] = None
        last = [t for op in taken for t in op.outputs if t in wanted and self.tree(t) is None]
        if not last:
            return None
        needed = with_ancestors({tensor.op for tensor in last}, list(taken))
        items = part_of(self._body, [op for op in taken if op in needed], last)
        # Whatever else the core returns, they stand behind it.
        self._trees.update((t, Leaf(i - len(last))) for i, t in enumerate(items.fetches))
        return items

    def _is_item(self, op: Operation, taken: Container[Operation]) -> bool:
        """Return whether ``op`` is arithmetic on results of the core, and on what is ``taken``."""
        if op in self._core or not is_arithmetic(op) or has_arrays(op.args) or not op.inputs:
            return False
        return all(
            t.op in taken or (t in self._made and self.tree(t) is not None) for t in op.inputs
        )

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

"""``StepEngine``: runs steps that change modules in place, and captures what a run asks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runhooks.engines.eager import Evaluate
from runhooks.engines.engine import Compiled
from runhooks.engines.torch import TorchEngine
from runhooks.engines.torch_arrays import synchronize
from runhooks.engines.torch_capture import CAPTURED, Capture
from runhooks.engines.torch_parts import TorchParts
from runhooks.graph.parts import CAPTURE, GRADIENT, READ, STEP
from runhooks.graph.plan import Body
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable

_NOTE = (
    "a step had been begun: what it changed in place ({parts}) before this error stays changed, "
    "and only a checkpoint brings back what was there"
)


class StepEngine(TorchEngine):
    """The torch engine for a graph whose steps change ``parts``.

    What depends on no step is computed first, so that it finds the parts as they were when the run
    began; then the steps; then what depends on them. A step is called with what was fed, as it is.
    """

    def __init__(self, parts: TorchParts) -> None:
        self._parts = parts

    def compile(self, body: Body) -> Compiled:
        if (alone := self._step_alone(body)) is not None:
            return alone
        run = super().compile(body)
        if not any(op.type == STEP for op in body.operations):
            return run
        parts = self._parts

        def noting(variables: Mapping[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
            begun = parts.begun
            try:
                return run(variables, given)
            except BaseException as error:
                if parts.begun != begun:
                    error.add_note(_NOTE.format(parts=parts))
                raise

        return noting

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        ordered = _in_order(operations)
        evaluate = super().evaluator(ordered)
        if not any(op.type in (CAPTURE, GRADIENT) for op in ordered):
            return evaluate
        capture = Capture(self._parts, ordered)
        if not any(op.type == STEP for op in ordered):
            capture.check_without_step()

        def capturing(
            values: dict[Tensor, Any], variables: Mapping[Variable, Any]
        ) -> dict[Variable, Any]:
            with capture.install() as captured:
                values[CAPTURED] = captured
                return evaluate(values, variables)

        return capturing

    def read_args(self, op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
        if op.type in (STEP, CAPTURE, GRADIENT):
            return op.read_args(values)
        return super().read_args(op, values)

    def fetched(self, tensor: Tensor, value: Any) -> Any:
        # What was read or captured is a copy already.
        is_copy = tensor.op.type in (READ, CAPTURE, GRADIENT)
        return value if is_copy else super().fetched(tensor, value)

    def wait(self, values: Sequence[Any]) -> None:
        super().wait(values)
        for module in self._parts.modules().values():
            synchronize([*module.parameters(), *module.buffers()])

    def _step_alone(self, body: Body) -> Compiled | None:
        """The way of a training step in which nothing else is asked: as short as it can be."""
        if len(body.operations) != 1 or body.fetches or body.assigned or body.kept:
            return None
        (op,) = body.operations
        if op.type != STEP or op.fn is None:
            return None
        if not all(isinstance(arg, Tensor) and arg in body.given for arg in op.args):
            return None
        fn, name, parts = op.fn, op.name, self._parts
        in_order = op.args == body.given
        places = [body.given.index(tensor) for tensor in op.args]

        def run(variables: Mapping[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
            try:
                fn(*(given if in_order else [given[i] for i in places]))
            except BaseException as error:
                error.add_note(f"in the operation {name!r} of the graph")
                error.add_note(_NOTE.format(parts=parts))
                raise
            return ()

        return run


def step_function(
    fn: Callable[..., Any],
    parts: TorchParts,
    name: str,
    outputs: Sequence[str],
    *,
    counts: bool,
    nvtx: bool,
) -> Callable[..., Any]:
    """What a step calls: ``fn``, with ``parts`` told that it begins, and ``outputs`` looked for.

    Raises TypeError if ``fn`` cannot be called, RuntimeError for ``nvtx`` without CUDA.
    """
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    if nvtx and not torch.cuda.is_available():
        raise RuntimeError("nvtx=True needs CUDA, which is not available here: leave it out")

    unseen = [output_of(name, output) for output in outputs]

    def begun(*args: Any) -> Any:
        parts.begin(counts=counts)
        returned = fn(*args)
        # Told in the first run, and not when a hook asks for it, hours later.
        while unseen:
            unseen[-1](returned)
            unseen.pop()
        return returned

    def marked(*args: Any) -> Any:
        with torch.cuda.nvtx.range(name):
            return begun(*args)

    return marked if nvtx else begun


def output_of(step: str, output: str) -> Callable[[Any], Any]:
    """A function that finds ``output`` in what the step has returned; ValueError without it."""

    def read(returned: Any) -> Any:
        if isinstance(returned, Mapping) and output in returned:
            return returned[output]
        if isinstance(returned, Mapping):
            got = f"a dict with {', '.join(map(repr, returned)) or 'nothing'} in it"
        else:
            got = "None" if returned is None else f"a {type(returned).__name__}"
        raise ValueError(
            f"the step {step!r} must return a dict with {output!r}, which is one of its outputs: "
            f"it returned {got}"
        )

    return read


def _in_order(operations: Sequence[Operation]) -> list[Operation]:
    """First what no step has a part in, then the steps and what they need, then the rest."""
    late: set[Operation] = set()
    late_variables: set[Variable] = set()
    for op in operations:
        after = any(tensor.op in late for tensor in op.inputs) or op.assigns in late_variables
        if op.type in (STEP, CAPTURE, GRADIENT) or after:
            late.add(op)
            if op.assigns is not None:  # assignments to one variable keep their order
                late_variables.add(op.assigns)
    for_steps: set[Operation] = set()
    for op in reversed(operations):
        if op in late and (op.type == STEP or op in for_steps):
            for_steps.update([op, *(tensor.op for tensor in op.inputs if tensor.op in late)])
    return sorted(operations, key=lambda op: (op in late) + (op in late and op not in for_steps))

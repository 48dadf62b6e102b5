"""``StepEngine``: runs steps that change modules in place, and captures values inside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runhooks.arrays.torch import synchronize
from runhooks.engines.eager import Evaluate
from runhooks.engines.torch.capture import CAPTURED, Capture
from runhooks.engines.torch.engine import TorchEngine
from runhooks.engines.torch.objects import TorchObjects
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.engine import Compiled, FlatRun
from runhooks.graph.evaluate import note_operation
from runhooks.graph.nodes import CAPTURES, READS_OBJECTS, Effect, Operation, Part, Tensor, Variable
from runhooks.graph.plan import Body


class LoneStep(FlatRun):
    """Calls the function of a step, and takes outputs from what it returns.

    Args:
        op: The step, whose function changes objects in place.
        places: Where its arguments are among the values that are given; None: they are these.
        outputs: The operations that take the values that are fetched from what it returns.
        own: Returns a copy of a value, for whoever fetches it.
        note: What to note on errors.
    """

    def __init__(
        self,
        op: Operation,
        places: Sequence[int] | None,
        outputs: Sequence[Operation],
        own: Callable[[Any], Any],
        note: str,
    ) -> None:
        fn: Any = op.fn
        reads: list[tuple[Operation, Any]] = [(it, it.fn) for it in outputs]

        def step(*given: Any) -> list[Any]:
            at = op
            try:
                returned = fn(*given) if places is None else fn(*[given[i] for i in places])
                fetched = []
                for at, read in reads:  # noqa: B007 - it tells where an error came from
                    fetched.append(own(read(returned)))
            except BaseException as error:
                note_operation(error, at)
                add_note(error, note)
                raise
            return [fetched]

        super().__init__(step)

    def __call__(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
        """Make the run, as what ``Engine.compile`` returns."""
        fetched: Sequence[Any] = self.step(*given)[0]
        return fetched


_STEP_OR_CAPTURE = CAPTURES | {Effect.STEP}

_NOTE = (
    "a step had begun: what it changed in place ({objects}) before this error stays changed; "
    "restore a checkpoint to undo it"
)


class StepEngine(TorchEngine):
    """The torch engine for a graph whose steps change ``objects``.

    Operations that do not depend on a step are computed first, so that they find the objects as
    they were when the run began; then the steps; then what depends on them. A step is called with
    the fed values as they are.
    """

    def __init__(self, objects: TorchObjects) -> None:
        self._objects = objects

    def compile(self, body: Body) -> Compiled:
        if (alone := self._step_alone(body)) is not None:
            return alone
        run = super().compile(body)
        if not any(op.effect is Effect.STEP for op in body.operations):
            return run
        objects = self._objects

        def noting(variables: dict[Variable, Any], given: Sequence[Any]) -> Sequence[Any]:
            begun = objects.begun
            try:
                return run(variables, given)
            except BaseException as error:
                if objects.begun != begun:
                    add_note(error, _NOTE.format(objects=objects))
                raise

        return noting

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        ordered = _in_order(operations)
        evaluate = preserving(super().evaluator, ordered, lambda: self._objects)
        if not any(op.effect in CAPTURES for op in ordered):
            return evaluate
        capture = Capture(self._objects, ordered)
        if not any(op.effect is Effect.STEP for op in ordered):
            capture.check_without_step()

        def capturing(
            values: dict[Tensor, Any], variables: Mapping[Variable, Any]
        ) -> dict[Variable, Any]:
            with capture.install() as captured:
                values[CAPTURED] = captured
                return evaluate(values, variables)

        return capturing

    def read_args(self, op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
        if op.effect in _STEP_OR_CAPTURE:
            return op.read_args(self.handed(op, values))
        if op.effect is Effect.STEP_OUTPUT or isinstance(op.fn, Part):
            return op.read_args(values)  # what a step returns keeps its type
        return super().read_args(op, values)

    def fetched(self, tensor: Tensor, value: Any) -> Any:
        # What was read or captured is a copy already.
        is_copy = tensor.op.effect in READS_OBJECTS
        return value if is_copy else super().fetched(tensor, value)

    def wait(self, values: Sequence[Any]) -> None:
        super().wait(values)
        for module in self._objects.modules().values():
            synchronize([*module.parameters(), *module.buffers()])

    def flat_run(
        self, compiled: Compiled, variables: Mapping[Variable, Any], given: Sequence[Any]
    ) -> FlatRun | None:
        return compiled if isinstance(compiled, LoneStep) else None

    def _step_alone(self, body: Body) -> LoneStep | None:
        """Return the shortest way to run one step, and to fetch its outputs; else None."""
        if not body.operations or body.assigned or body.kept:
            return None
        op, *outputs = _in_order(body.operations)
        if op.effect is not Effect.STEP or op.fn is None:
            return None
        if not all(isinstance(arg, Tensor) and arg in body.given for arg in op.args):
            return None
        returned = op.outputs[0]
        if not all(it.effect is Effect.STEP_OUTPUT and it.args == (returned,) for it in outputs):
            return None
        by_tensor = {it.outputs[0]: it for it in outputs}
        if returned in body.given or set(body.fetches) != set(by_tensor):
            return None
        places = None if op.args == body.given else [body.given.index(it) for it in op.args]
        note = _NOTE.format(objects=self._objects)
        return LoneStep(op, places, [by_tensor[it] for it in body.fetches], self.own, note)


def preserving(
    evaluator: Callable[[Sequence[Operation]], Evaluate],
    operations: Sequence[Operation],
    objects: Callable[[], TorchObjects],
) -> Evaluate:
    """Return what ``evaluator`` does, but each function that does not train preserves ``objects``.

    A function trains if a step or an assignment needs it.
    """
    training: set[Operation] = set()
    for op in reversed(operations):
        if op.effect is Effect.STEP or op.assigns is not None or op in training:
            training.update([op, *(tensor.op for tensor in op.inputs)])
    parts: list[tuple[bool, list[Operation]]] = [(False, [])]
    for op in operations:
        if op.type == "Call" and op not in training:
            parts += [(True, [op]), (False, [])]
        else:
            parts[-1][1].append(op)
    if len(parts) == 1:
        return evaluator(operations)
    evaluates = [(preserves, evaluator(part)) for preserves, part in parts if part]

    def evaluate(
        values: dict[Tensor, Any], variables: Mapping[Variable, Any]
    ) -> dict[Variable, Any]:
        assigned: dict[Variable, Any] = {}
        for preserves, compute in evaluates:
            now = {**variables, **assigned} if assigned else variables
            if preserves:
                with objects().preserved():
                    compute(values, now)
            else:
                assigned |= compute(values, now)
        return assigned

    return evaluate


def step_function(
    fn: Callable[..., Any],
    objects: TorchObjects,
    name: str,
    outputs: Sequence[str],
    *,
    counts: bool,
    nvtx: bool,
) -> Callable[..., Any]:
    """Return what a step calls: ``fn``, counted by ``objects``, its ``outputs`` checked at first.

    Raises:
        TypeError: If ``fn`` cannot be called.
        RuntimeError: For ``nvtx`` without CUDA.
    """
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    if nvtx and not torch.cuda.is_available():
        raise RuntimeError("nvtx=True needs CUDA, which is not available here: leave it out")

    gradients = objects.pending_gradients
    unseen = [output_of(name, output, outputs) for output in outputs]

    def begun(*args: Any) -> Any:
        objects.begun += 1
        gradients.pending = not counts
        returned = fn(*args)
        # In the first run, and not when a hook asks for one hours later.
        while unseen:
            unseen[-1](returned)
            unseen.pop()
        return returned

    def marked(*args: Any) -> Any:
        with torch.cuda.nvtx.range(name):
            return begun(*args)

    return marked if nvtx else begun


def output_of(step: str, output: str, outputs: Sequence[str]) -> Callable[[Any], Any]:
    """Return a function that finds ``output``, one of ``outputs``, in what the step returned.

    The function raises ValueError if it is not there.
    """
    place = outputs.index(output)

    def read(returned: Any) -> Any:
        if isinstance(returned, Mapping) and output in returned:
            return returned[output]
        if (fields := nest.fields(returned)) is not None:
            if output in fields:
                return fields[output]
            got = f"names {', '.join(map(repr, fields)) or 'nothing'}"
        elif returned is None:
            got = "returned None"
        else:
            elements = returned if isinstance(returned, tuple | list) else [returned]
            if len(elements) == len(outputs):
                return elements[place]
            got = f"returned {len(elements)} without names"
        raise ValueError(
            f"the step {step!r} must return {output!r}, one of its outputs {list(outputs)}, by "
            f"name, as in return {{{output!r}: {output}}}, or all of them in order: it {got}"
        )

    return read


def _in_order(operations: Sequence[Operation]) -> list[Operation]:
    """Order operations: those without a step, then the steps and what they need, then the rest."""
    late: set[Operation] = set()
    late_variables: set[Variable] = set()
    for op in operations:
        after = any(tensor.op in late for tensor in op.inputs) or op.assigns in late_variables
        if op.effect in _STEP_OR_CAPTURE or after:
            late.add(op)
            if op.assigns is not None:  # assignments to one variable keep their order
                late_variables.add(op.assigns)
    for_steps: set[Operation] = set()
    for op in reversed(operations):
        if op in late and (op.effect is Effect.STEP or op in for_steps):
            for_steps.update([op, *(tensor.op for tensor in op.inputs if tensor.op in late)])
    return sorted(operations, key=lambda op: (op in late) + (op in late and op not in for_steps))

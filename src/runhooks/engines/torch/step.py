"""``StepEngine`` runs steps that change modules in place, and captures values inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from runhooks.arrays import trees
from runhooks.arrays.torch import synchronize
from runhooks.engines.eager import Evaluate, ReadArgs, same
from runhooks.engines.torch.capture import CAPTURED, Capture
from runhooks.engines.torch.engine import TorchEngine
from runhooks.engines.torch.objects import TorchObjects
from runhooks.engines.torch.pending import SteppedOptimizers
from runhooks.engines.torch.states import restorer
from runhooks.errors import add_note
from runhooks.graph.engine import Ready
from runhooks.graph.nodes import (
    CAPTURES,
    LATEST,
    READS_OBJECTS,
    Effect,
    Operation,
    Part,
    Tensor,
    Variable,
)
from runhooks.graph.step_result import ResultRule

_STEP_OR_CAPTURE = CAPTURES | {Effect.STEP}

_NOTE = "a step had begun: what it changed in place ({}) stays; restore a checkpoint to undo it"

_WITH_GENERATORS = ("cpu", "cuda", "xpu", "mps")  # devices

_PLAIN = (dict, list, tuple)  # others may move themselves


class StepEngine(TorchEngine):
    """The engine of a graph whose steps change ``objects``, and compute on ``device``."""

    def __init__(self, objects: TorchObjects, device: torch.device | None = None) -> None:
        self._objects = objects
        self._device = device
        if device is not None:
            self.put = partial(_put, device)

    def random_key(self, seed: int, stream: int, runs: Any) -> torch.Generator:
        if self._device is None or self._device.type not in _WITH_GENERATORS:
            return super().random_key(seed, stream, runs)
        with self._device:
            return super().random_key(seed, stream, runs)

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        evaluate, objects = super().evaluator(operations), self._objects
        makes_step = any(op.effect is Effect.STEP for op in operations)
        if makes_step:
            evaluate = _noting(evaluate, objects)
        if not any(op.effect in CAPTURES for op in operations):
            return evaluate
        capture = Capture(objects, operations)
        if not makes_step:
            capture.check_without_step()

        def capturing(
            values: dict[Tensor, Any], variables: Mapping[Variable, Any]
        ) -> dict[Variable, Any]:
            with capture.install() as captured:
                values[CAPTURED] = captured
                return evaluate(values, variables)

        return capturing

    def ready(self, operations: Sequence[Operation]) -> list[Ready]:
        return preserving(super().ready(_in_order(operations)), lambda: self._objects)

    def reader(self, op: Operation) -> ReadArgs:
        if op.effect in _STEP_OR_CAPTURE:
            return self.handed(op)
        if op.effect is Effect.STEP_OUTPUT or isinstance(op.fn, Part):
            return op.read_args  # what a step returns keeps its type
        return super().reader(op)

    def fetched(self, tensor: Tensor) -> Callable[[Any], Any]:
        is_copy = tensor.op.effect in READS_OBJECTS
        return same if is_copy else super().fetched(tensor)

    def wait(self, values: Sequence[Any]) -> None:
        super().wait(values)
        for module in self._objects.modules().values():
            synchronize([*module.parameters(), *module.buffers()])


def _put(device: torch.device, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if type(value) not in _PLAIN:
        move = getattr(value, "to", None)
        if callable(move) and not isinstance(value, type):
            return move(device)
    container = trees.container_of(value)
    if container is None:
        return value
    return container.like(value, [_put(device, part) for _, part in container.items(value)])


def _noting(evaluate: Evaluate, objects: TorchObjects) -> Evaluate:
    def noting(values: dict[Tensor, Any], variables: Mapping[Variable, Any]) -> dict[Variable, Any]:
        begun = objects.begun
        try:
            return evaluate(values, variables)
        except BaseException as error:
            if objects.begun != begun:
                add_note(error, _NOTE.format(objects))
            raise

    return noting


def preserving(operations: Iterable[Ready], objects: Callable[[], TorchObjects]) -> list[Ready]:
    """Let functions that no step or assignment needs preserve ``objects``."""
    made = list(operations)
    training: set[Operation] = set()
    for op, *_ in reversed(made):
        if op.effect is Effect.STEP or op.assigns is not None or op in training:
            training.update([op, *(tensor.op for tensor in op.inputs)])

    def preserved(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found = objects()
            with found.calling, found.preserved():
                return fn(*args)

        return call

    return [
        it._replace(fn=preserved(it.fn)) if it.op.type == "Call" and it.op not in training else it
        for it in made
    ]


def step_function(
    fn: Callable[..., Any],
    objects: TorchObjects,
    name: str,
    outputs: Sequence[str],
    *,
    carries: bool = False,
) -> Callable[..., Any]:
    """Return ``fn``, counted, its ``outputs`` checked at first.

    ``carries``: they are the last of what it returns, behind its states.
    """
    unseen = [output_of(name, output, outputs) for output in outputs]

    def begun(*args: Any) -> Any:
        objects.begun += 1
        with SteppedOptimizers() as stepped:
            returned = fn(*args)
        while unseen:
            unseen[-1](returned[-1] if carries else returned)
            unseen.pop()
        objects.check_modes()
        if stepped:
            objects.check_optimizers(name, stepped)
        return returned

    return begun


def carrying_step(
    fn: Callable[..., Any], states: Mapping[int, Any], rule: ResultRule
) -> Callable[..., tuple[Any, ...]]:
    """Return a step that returns new states and a dict of outputs.

    ``states``: what its states begin with, by their places among the arguments.
    """
    restorers = {place: restorer(value) for place, value in states.items()}
    is_known = False

    def called(*args: Any) -> tuple[Any, ...]:
        nonlocal is_known
        handed = list(args)
        for place, restored in restorers.items():
            if restored is not None:
                handed[place] = restored(args[place])
        returned = fn(*handed)
        old = [args[place] for place in restorers]
        new, outputs = rule.divide(returned, old)
        if not is_known:
            rule.check(returned, old, new)
            is_known = True
        return *new, outputs

    return called


def output_of(step: str, output: str, outputs: Sequence[str]) -> Callable[[Any], Any]:
    """Return what finds ``output``, one of ``outputs``, in what the step returned."""
    place = outputs.index(output)

    def read(returned: Any) -> Any:
        if isinstance(returned, Mapping) and output in returned:
            return returned[output]
        if (fields := trees.fields(returned)) is not None:
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
    """What needs no step comes first, then steps and what they need, then the rest."""
    late: set[Operation] = set()
    late_variables: set[Variable] = set()
    for op in operations:
        after = any(tensor.op in late for tensor in op.inputs) or op.assigns in late_variables
        if op.effect in _STEP_OR_CAPTURE or op.type == LATEST or after:
            late.add(op)
            if op.assigns is not None:  # assignments to one variable keep their order
                late_variables.add(op.assigns)
    for_steps: set[Operation] = set()
    for op in reversed(operations):
        if op in late and (op.effect is Effect.STEP or op in for_steps):
            for_steps.update([op, *(tensor.op for tensor in op.inputs if tensor.op in late)])
    return sorted(operations, key=lambda op: (op in late) + (op in late and op not in for_steps))

"""What the steps of an epoch add up to, and what starts anew in its first run."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from runhooks.graph.base import GraphKeys, get_default_graph
from runhooks.graph.build import call, get_global_step, update
from runhooks.graph.engine import Engine
from runhooks.graph.graph import Graph, own_graph
from runhooks.graph.nodes import LATEST, Effect, Operation, Tensor, Variable, cleaned_name
from runhooks.ranks import current_group
from runhooks.trigger import no_epochs

#: How the names of variables end that hold the sums of a mean.
EPOCH_SUMS = "/epoch_sums"

#: How they end if they are the same on all ranks.
GLOBAL_SUMS = f"/global{EPOCH_SUMS}"


def epoch_mean(
    tensor: Tensor | str, weight: Tensor | str | float | None = None, name: str | None = None
) -> Tensor:
    """Return a tensor: the mean of ``tensor`` over the epoch so far, with the step of the run.

    Of several PyTorch ranks it is the mean of all, which have to ask for it in the same run. The
    mean of a million values is right to 1e-7. The same call returns the same tensor again.

    One that a resumed training did not have before is the mean of the rest of the epoch, as a
    warning says; but on a ``tf.Graph``, a ``tf.train.Saver`` restores only what was saved.

    Args:
        tensor: A tensor or its name: a single number in each step.
        weight: What a step counts: a tensor, its name, or a number. None: the length of the first
            array in the batch, or 1.
        name: The name of the mean; None: ``"epoch_mean/"`` and that of ``tensor``.

    Raises:
        ValueError: If nothing says when an epoch ends, or nothing is called ``tensor``. In a run,
            if the value is not a single number. On a ``tf.Graph``, if no operation both increases
            the global step and computes ``tensor``.
        RuntimeError: If the graph is finalized.
    """
    graph = get_default_graph()
    if not isinstance(graph, Graph):
        return graph.add_epoch_mean(tensor, weight, name)  # type: ignore[no-any-return]
    graph, epoch = _graph_and_epoch("epoch_mean")
    value = _tensor(graph, tensor)
    counted = _tensor(graph, weight) if isinstance(weight, str) else weight
    full = name and graph.scope + name
    mean: Tensor = graph.added.get_or_make(
        ("epoch_mean", value, counted, full), lambda: _mean(graph, epoch, value, counted, name)
    )
    return mean


def _mean(
    graph: Graph, epoch: Tensor, value: Tensor, counted: Tensor | float | None, name: str | None
) -> Tensor:
    engine = graph.engine
    name = name or f"epoch_mean/{cleaned_name(value.op.name, 'value')}"
    counted = _examples(graph, value) if counted is None else counted
    suffix = GLOBAL_SUMS if engine.runs_one_program else EPOCH_SUMS
    sums = Variable(engine.new_sums, name=f"{name}{suffix}", trainable=False)
    add = partial(engine.add_to_sums, value.name)
    total = update(sums, add, value, counted, name=f"{name}/update")
    fresh = update(sums, lambda _: engine.new_sums(), name=f"{name}/reset")
    graph.add_to_collection(GraphKeys.STEP_UPDATES, total.op)
    _reset_with(graph, epoch, fresh.op)
    latest = _so_far(graph, sums)
    if engine.runs_one_program:
        return graph.add(LATEST, engine.mean_of_sums, (latest,), name=name).outputs[0]
    mean = partial(_mean_of_all_ranks, engine, name)
    args = (latest, get_global_step(graph))
    return graph.add(LATEST, mean, args, name=name, effect=Effect.GATHER).outputs[0]


def _mean_of_all_ranks(engine: Engine, name: str, sums: Any, step: Any) -> Any:
    group = current_group()
    if group.size > 1:
        numbers = engine.arrays.to_numpy(sums).tolist()
        parts = {str(place): number for place, number in enumerate(numbers)}
        total = group.total(name, parts, at=f"in the run after step {step}")
        sums = engine.place(sums, np.array([total[place] for place in parts]))
    return engine.mean_of_sums(sums)


def epoch_metrics(state: str, name: str | None = None) -> Tensor:
    """Return a tensor: what the metric objects of a step have computed over the epoch so far.

    The first step of the next epoch resets them. The same call returns the same tensor again.

    Args:
        state: The name of the state or object.
        name: The name of the tensor; None: ``"epoch_metrics/"`` and ``state``.

    Raises:
        ValueError: If nothing says when an epoch ends, or nothing is called ``state``.
        TypeError: If it has no ``compute``, or neither ``reset`` nor ``empty``; perhaps only in a
            run.
        RuntimeError: If the graph is finalized.
    """
    graph, epoch = _graph_and_epoch("epoch_metrics")
    name = name or f"epoch_metrics/{cleaned_name(state, 'metrics')}"
    metrics: Tensor = graph.added.get_or_make(
        ("epoch_metrics", state, graph.scope + name), lambda: _metrics(graph, epoch, state, name)
    )
    return metrics


def _metrics(graph: Graph, epoch: Tensor, state: str, name: str) -> Tensor:
    found = graph.object_named(state)
    if found is not None:
        _check_metrics(state, found, "reset")
        if callable(keep := getattr(found, "persistent", None)):
            keep(True)  # or the state_dict of torchmetrics is empty
        # Of torchmetrics, it gathers what the ranks have.
        op = graph.add(LATEST, found.compute, name=name, effect=Effect.GATHER)
        value: Tensor = op.outputs[0]
        reset = found.reset
    else:
        variable = _state(graph, state)
        value = call(partial(_computed, state), _so_far(graph, variable), name=name)
        fresh = call(partial(_reset, state), variable, name=f"{name}/reset")
        reset = variable.assign(fresh).op
    _reset_with(graph, epoch, reset)
    return value


def reset_each_epoch(state: str) -> None:
    """Give a state of the step its initial value again in each epoch, before its first step.

    Args:
        state: The name of the state. A function that makes its first value may be called again, and
            must return the same.

    Raises:
        ValueError: If nothing says when an epoch ends, or the step does not return a new ``state``.
        RuntimeError: If the graph is finalized.
    """
    graph, epoch = _graph_and_epoch("reset_each_epoch")
    variable = _state(graph, state)
    graph.added.get_or_make(
        ("reset_each_epoch", variable), lambda: _reset_with(graph, epoch, variable)
    )


def _reset_with(graph: Graph, epoch: Tensor, reset: Any) -> None:
    """Let the first run of each epoch do ``reset``; each step then draws the epoch."""
    graph.add_to_collection(GraphKeys.EPOCH_RESETS, reset)
    graph.add_to_collection(GraphKeys.STEP_UPDATES, epoch.op)


def _state(graph: Graph, state: str) -> Variable:
    variable = graph.as_graph_element(state)
    is_updated = any(op.assigns is variable for op in graph.get_operations())
    if not isinstance(variable, Variable) or not is_updated:
        raise ValueError(f"state must be a state of the step, got {state!r}")
    return variable


def _so_far(graph: Graph, variable: Variable) -> Tensor:
    name = f"{variable.op.name}/latest"
    op = graph.add(LATEST, lambda value: value, name=name, assigns=variable)
    graph.add_to_collection(GraphKeys.STEP_UPDATES, op)
    return op.outputs[0]


def _graph_and_epoch(what: str) -> tuple[Graph, Tensor]:
    graph = own_graph()
    if (epoch := graph.epoch) is None:
        raise no_epochs(what)
    return graph, epoch


def _tensor(graph: Graph, element: Tensor | str) -> Tensor:
    found = graph.as_graph_element(element)
    if isinstance(found, Operation):
        if len(found.outputs) != 1:
            raise ValueError(f"{found.name!r} is an operation without a value: give a tensor")
        return found.outputs[0]
    return found


def _examples(graph: Graph, value: Tensor) -> Tensor | int:
    needed: set[Operation] = set()
    waiting = [value.op]
    while waiting:
        op = waiting.pop()
        if op not in needed:
            needed.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    data = graph.get_collection(GraphKeys.EPOCH_INPUT)
    is_of_a_step = any(op.effect is Effect.STEP for op in needed)  # one of several may need no data
    if data and (data[0] in needed or not is_of_a_step):
        batch = data[0].outputs
    else:
        found = sorted((op for op in needed if op.type == "Placeholder"), key=lambda op: op.number)
        batch = [op.outputs[0] for op in found]
    examples: Tensor | int = call(graph.engine.examples, *batch, name="examples") if batch else 1
    return examples


def _check_metrics(state: str, metrics: Any, *resets: str) -> None:
    names = ("compute", *resets)
    has_compute, *has_reset = (callable(getattr(metrics, name, None)) for name in names)
    if not has_compute or not any(has_reset):
        either = "() or ".join(resets)
        raise TypeError(f"{state!r} must have compute() and {either}(), got {metrics!r}")


def _computed(state: str, metrics: Any) -> Any:
    _check_metrics(state, metrics, "reset", "empty")
    return metrics.compute()


def _reset(state: str, metrics: Any) -> Any:
    _check_metrics(state, metrics, "reset", "empty")
    if callable(reset := getattr(metrics, "reset", None)):
        reset()
        return metrics
    return metrics.empty()

"""``epoch_mean`` and ``epoch_metrics``: what the steps of an epoch add up to; and what starts anew.

The first two are computed by the runs that make steps, and asked for by nobody. The sums are a
variable, which checkpoints hold; the first run of an epoch starts them anew, so that hooks that act
at the end of an epoch, savers and ``end`` still find the whole.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from runhooks.graph import names
from runhooks.graph.base import GraphKeys
from runhooks.graph.build import call
from runhooks.graph.graph import Graph, own_graph
from runhooks.graph.nodes import Effect, Operation, Tensor, Variable
from runhooks.trigger import no_epochs


def epoch_mean(
    tensor: Tensor | str, weight: Tensor | str | float | None = None, name: str | None = None
) -> Tensor:
    """Return a tensor: the mean of ``tensor`` over the epoch so far, with the step of the run.

    Each run that makes the step behind ``tensor`` adds its value, where it is computed: nothing is
    fetched, and no hook is called. In a run of another step, a hook gets the mean so far. Asked for
    in the last run of an epoch, it is the mean of the epoch, also after a resume in the middle.
    Sums are float64, or on JAX float32 with a compensation: the mean of a million values is right
    to 1e-7.

        hooks = [rh.LoggingTensorHook([rh.epoch_mean("loss")], trigger=rh.Trigger(every_epochs=1))]

    Args:
        tensor: A tensor or its name: a single number in each step.
        weight: What a step counts, such as the number of its examples: a tensor, its name, or a
            number. None: the length of the first array in the batch, or 1 where there is none.
        name: The name of the mean; None: ``"epoch_mean/"`` and the name of ``tensor``.

    Raises:
        ValueError: If nothing says when an epoch ends, or nothing is called ``tensor``. In a run,
            if the value is not a single number.
        RuntimeError: If the graph is finalized.
    """
    graph = own_graph()
    epoch = _epoch_of(graph, "epoch_mean")
    value = _tensor(graph, tensor)
    engine = graph.engine
    name = name or f"epoch_mean/{names.cleaned(value.op.name, 'value')}"
    counted = _examples(graph, value) if weight is None else weight
    counted = _tensor(graph, counted) if isinstance(counted, str) else counted
    sums = Variable(engine.new_sums, name=f"{name}/sums", trainable=False)
    added = call(partial(engine.add_to_sums, value.name), sums, value, counted, name=f"{name}/add")
    total = sums.assign(added, name=f"{name}/update")
    fresh = sums.assign(call(engine.new_sums, name=f"{name}/zeros"), name=f"{name}/reset")
    graph.add_to_collection(GraphKeys.STEP_UPDATES, total.op)
    graph.add_to_collection(GraphKeys.STEP_UPDATES, epoch.op)
    graph.add_to_collection(GraphKeys.EPOCH_RESETS, fresh.op)
    mean: Tensor = call(engine.mean_of_sums, total, name=name)
    if graph.objects is not None:  # what a hook gets in a run of another step
        before = call(engine.mean_of_sums, sums, name=f"{name}/before")
        graph.add_to_collection(GraphKeys.EPOCH_MEANS, (mean, before))
    return mean


def epoch_metrics(state: str, name: str | None = None) -> Tensor:
    """Return a tensor: what the metric objects of a step have computed over the epoch so far.

    ``state`` is a state of the step that its function updates: metrics of flax nnx or torchmetrics,
    with ``compute`` and ``reset``, or of clu, with ``compute`` and ``empty``. The value is that of
    ``compute()`` after the step of the run. The first run of the next epoch resets them.

        graph = rh.jax.graph(train_step, data=loader, model=model, metrics=nnx.MultiMetric(...))
        with graph.as_default():
            hooks = [rh.CallHook(print, [rh.epoch_metrics("metrics")], every_n_epochs=1)]

    Args:
        state: The name of the state or object.
        name: The name of the tensor; None: ``"epoch_metrics/"`` and ``state``.

    Raises:
        ValueError: If nothing says when an epoch ends, or nothing is called ``state``.
        TypeError: If it has no ``compute``, or neither ``reset`` nor ``empty``: in a run, where
            what it is becomes known there.
        RuntimeError: If the graph is finalized.
    """
    graph = own_graph()
    epoch = _epoch_of(graph, "epoch_metrics")
    name = name or f"epoch_metrics/{names.cleaned(state, 'metrics')}"
    found = graph.object_named(state)
    if found is not None:
        _check_metrics(state, found)
        if callable(keep := getattr(found, "persistent", None)):
            keep(True)  # or the state_dict of torchmetrics is empty
        after: Any = [op.outputs[0] for op in graph.get_operations() if op.type == "Step"]
        value: Tensor = call(lambda *_: found.compute(), *after, name=name)
        graph.add_to_collection(GraphKeys.EPOCH_RESETS, found.reset)
    else:
        variable, updates = _state(graph, state)
        value = call(partial(_computed, state), updates[-1].outputs[0], name=name)
        fresh = call(partial(_reset, state), variable, name=f"{name}/reset")
        graph.add_to_collection(GraphKeys.EPOCH_RESETS, variable.assign(fresh).op)
    graph.add_to_collection(GraphKeys.STEP_UPDATES, epoch.op)
    return value


def reset_each_epoch(state: str) -> None:
    """Give a state of the step its initial value again in the first run of each epoch.

    For what the step carries from run to run within an epoch: the hidden state of a recurrent
    network, a count, a confusion matrix. It is reset before the step, so hooks that act at the end
    of an epoch, savers and ``end`` still find the value of the whole epoch.

        hidden = torch.zeros(1, 20, 64)
        graph = rh.torch.graph(train_step, ["loss"], data=windows, model=model, hidden=hidden)
        with graph.as_default():
            rh.reset_each_epoch("hidden")

    Args:
        state: The name of the state. A function that makes its first value may be called again, and
            has to return the same one.

    Raises:
        ValueError: If nothing says when an epoch ends, or ``state`` is not a state that the step
            takes and returns anew.
        RuntimeError: If the graph is finalized.
    """
    graph = own_graph()
    epoch = _epoch_of(graph, "reset_each_epoch")
    variable, _ = _state(graph, state)
    graph.add_to_collection(GraphKeys.EPOCH_RESETS, variable)
    graph.add_to_collection(GraphKeys.STEP_UPDATES, epoch.op)


def _state(graph: Graph, state: str) -> tuple[Variable, list[Operation]]:
    """Return the variable of a state, and what assigns it."""
    variable = graph.as_graph_element(state)
    updates = [op for op in graph.get_operations() if op.assigns is variable]
    if not isinstance(variable, Variable) or not updates:
        raise ValueError(f"state must be a state of the step, got {state!r}")
    return variable, updates


def _epoch_of(graph: Graph, what: str) -> Tensor:
    epoch = graph.epoch
    if epoch is None:
        raise no_epochs(what)
    return epoch


def _tensor(graph: Graph, element: Tensor | str) -> Tensor:
    found = graph.as_graph_element(element)
    if isinstance(found, Operation):
        if len(found.outputs) != 1:
            raise ValueError(f"{found.name!r} is an operation without a value: give a tensor")
        return found.outputs[0]
    return found


def _examples(graph: Graph, value: Tensor) -> Tensor | int:
    """Return a tensor of the number of examples in the batch that ``value`` is computed of."""
    batch = _batch(graph, value)
    if not batch:
        return 1
    counted: Tensor = call(graph.engine.examples, *batch, name="examples")
    return counted


def _batch(graph: Graph, value: Tensor) -> list[Tensor]:
    seen: set[Operation] = set()
    waiting = [value.op]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    data = graph.get_collection(GraphKeys.EPOCH_INPUT)
    is_of_a_step = any(op.effect is Effect.STEP for op in seen)  # one of several may need no data
    if data and (data[0] in seen or not is_of_a_step):
        return list(data[0].outputs)
    found = sorted((op for op in seen if op.type == "Placeholder"), key=lambda op: op.number)
    return [op.outputs[0] for op in found]


def _check_metrics(state: str, metrics: Any) -> None:
    if not callable(getattr(metrics, "compute", None)):
        raise TypeError(f"{state!r} must have compute() and reset() or empty(), got {metrics!r}")
    if not any(callable(getattr(metrics, name, None)) for name in ("reset", "empty")):
        raise TypeError(f"{state!r} must have reset() or empty(), got {metrics!r}")


def _computed(state: str, metrics: Any) -> Any:
    _check_metrics(state, metrics)
    return metrics.compute()


def _reset(state: str, metrics: Any) -> Any:
    """Return ``metrics`` as at the start of an epoch: reset in place, or the empty ones."""
    _check_metrics(state, metrics)
    if callable(reset := getattr(metrics, "reset", None)):
        reset()
        return metrics
    return metrics.empty()

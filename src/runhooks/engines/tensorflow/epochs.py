"""Epochs of a ``tf.Graph``: which one it is, and the mean of a value over one.

An epoch is as many steps as the collection ``GraphKeys.STEPS_PER_EPOCH`` says. TensorFlow does not
know what belongs to a step, and its own sessions make runs too. So what does is put in front of the
operations that make the step, as their control input.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from runhooks.engines.tensorflow.fetches import AnalyzedGraph, needed
from runhooks.graph.epochs import EPOCH

v1 = tf.compat.v1


def add_epoch(graph: AnalyzedGraph, steps_per_epoch: int) -> Any:
    """Return the number of the epoch of a step, from 1, by the global step before it.

    ``put_before_steps`` makes sure of the latter.

    Raises:
        ValueError: If the graph has no global step.
    """
    step = graph.step_reads.tensor
    if step is None:
        raise ValueError("an epoch is a number of steps: the graph needs a global step")
    return tf.add(tf.identity(step) // steps_per_epoch, 1, name=EPOCH)


def put_before_steps(graph: AnalyzedGraph, number: Any) -> None:
    """Let every operation that makes a step wait until ``number`` is computed."""
    for op in graph.step_reads.makers():
        if number.op not in op.control_inputs:
            op._add_control_input(number.op)


def add_epoch_mean(graph: AnalyzedGraph, epoch: Any, value: Any, weight: Any, name: str) -> Any:
    """Return the mean of ``value``, as ``rh.epoch_mean``, in the default graph.

    Args:
        graph: That graph.
        epoch: As ``add_epoch`` returns it.
        value: A tensor: a single number.
        weight: Another, or a number; None: the number of examples.
        name: The name of the mean.

    Raises:
        ValueError: If no operation makes a step and all that ``value`` is computed of.
    """
    steps = _steps_of(graph, value)
    if not steps:
        raise ValueError(
            f"no operation increases the global step and computes all that {value.name!r} needs: "
            "call epoch_mean when the graph has its train_op, one operation, such as "
            "tf.group(minimize, increase_global_step)"
        )
    weight = _examples(graph, value) if weight is None else weight
    weight = _number(weight, f"the weight of {value.name!r}")
    with graph.launched.name_scope(f"{name}/"):
        # The sum, the weight, and the epoch that they are of.
        sums = v1.Variable(tf.zeros(3, tf.float64), trainable=False, use_resource=True, name="sums")
        added = tf.stack([weight * _number(value, repr(value.name)), weight])
        before, now = sums.read_value(), tf.cast(epoch, tf.float64)
        kept = tf.where(tf.equal(before[2], now), before[:2], tf.zeros_like(before[:2]))
        total = sums.assign(tf.concat([kept + added, [now]], 0), read_value=True)
    for op in steps:
        op._add_control_input(total.op)
    return tf.divide(total[0], total[1], name=name)


def _number(value: Any, what: str) -> Any:
    value = tf.cast(value, tf.float64)
    if value.shape.num_elements() not in (1, None):
        raise ValueError(f"{what} must be a single number, got a tensor of shape {value.shape}")
    return tf.reshape(value, [])


def _steps_of(graph: AnalyzedGraph, value: Any) -> list[Any]:
    """Return what makes a step and needs all data that ``value`` does: the first of the kind."""
    behind = set(needed([value]))
    sources = {op for op in behind if _is_source(op)}
    followers: dict[Any, list[Any]] = {}
    for op in graph.launched.get_operations():
        for before in {*op.control_inputs, *(tensor.op for tensor in op.inputs)}:
            followers.setdefault(before, []).append(op)
    found, seen, waiting = [], set(), list(graph.step_reads.makers())
    while waiting:
        op = waiting.pop(0)
        if op in seen:
            continue
        seen.add(op)
        if op not in behind and sources.issubset(needed([op])):
            found.append(op)
        else:
            waiting += followers.get(op, ())
    return found


def _examples(graph: AnalyzedGraph, value: Any) -> Any:
    """Return the length of the first array among the data that ``value`` needs; 1 without any."""
    behind = set(needed([value]))
    data = [op for op in graph.launched.get_operations() if op in behind and _is_source(op)]
    shapes = [tf.shape(tensor) for op in data for tensor in op.outputs]
    return tf.concat([*shapes, [1]], 0)[0]


def _is_source(op: Any) -> bool:
    return op.type == "Placeholder" or "GetNext" in op.type or "Dequeue" in op.type

"""A graph of TensorFlow's, as programs of 2017 build one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import tensorflow

tf = tensorflow.compat.v1

LIMIT_SECS = 200  # of a test that starts programs, which takes a tenth of that


class Model(NamedTuple):
    """One step adds 1 to both weights and to the global step; ``loss`` is the sum of the weights.

    ``fault``: a tensor that the step needs; fed what is no number, the step raises.
    """

    weights: Any
    loss: Any
    global_step: Any
    train_op: Any
    fault: Any


@pytest.fixture
def graph() -> Iterator[Any]:
    """A ``tf.Graph``, the default graph of the test."""
    graph = tensorflow.Graph()
    with graph.as_default():
        yield graph


@pytest.fixture
def model(graph: Any) -> Model:
    """The model in the default graph of the test."""
    return build_model()


def build_model() -> Model:
    weights = tf.get_variable("weights", [2], initializer=tf.zeros_initializer())
    loss = tf.reduce_sum(weights, name="loss")
    fault = tf.placeholder_with_default(0.0, [], name="fault")
    global_step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([tf.check_numerics(fault, "faulty", name="check")]):
        changes = [weights.assign_add([1.0, 1.0]), tf.assign_add(global_step, 1)]
        train_op = tf.group(*changes, name="train_op")
    return Model(weights, loss, global_step, train_op, fault)


@pytest.fixture
def launcher(tensorflow_launcher: Any) -> Iterator[Any]:
    """Starts programs that find TensorFlow loaded; whoever waits for them too long fails."""
    limit = threading.Timer(LIMIT_SECS, tensorflow_launcher.close)
    limit.daemon = True
    limit.start()
    yield tensorflow_launcher
    limit.cancel()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an item for every run of every session: each goes through one method."""
    made: list[int] = []
    call = tf.Session._do_call

    def counted(self: Any, *args: Any) -> Any:
        made.append(1)
        return call(self, *args)

    monkeypatch.setattr(tf.Session, "_do_call", counted)
    return made

"""The defaults of a scaffold of a ``tf.Graph``: TensorFlow's own operations and saver."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resources

from runhooks.engines.tensorflow.checkpoints import check_saver
from runhooks.engines.tensorflow.step_graph import StepGraph

v1 = tf.compat.v1


def fill(scaffold: Any, graph: StepGraph) -> None:
    """Fill in what ``scaffold`` lacks, from the collections of ``graph`` or newly made."""
    keys = v1.GraphKeys
    with graph.launched.as_default():
        for name, key, make in (
            ("init_op", keys.INIT_OP, _init_op),
            ("ready_op", keys.READY_OP, _ready_op),
            ("ready_for_local_init_op", keys.READY_FOR_LOCAL_INIT_OP, _ready_for_local_init_op),
            ("local_init_op", keys.LOCAL_INIT_OP, default_local_init_op),
            ("summary_op", keys.SUMMARY_OP, v1.summary.merge_all),
            ("saver", keys.SAVERS, _saver),
        ):
            if getattr(scaffold, name) is None:
                setattr(scaffold, name, scaffold.get_or_default(name, key, make))
        scaffold.saver = _built(scaffold.saver)
    graph.step_reads.prepare()


def default_local_init_op() -> Any:
    """Return an operation that initializes local variables, tables and local resources."""
    return tf.group(
        v1.local_variables_initializer(),
        v1.tables_initializer(),
        resources.initialize_resources(resources.local_resources()),
    )


def _init_op() -> Any:
    return tf.group(
        v1.global_variables_initializer(),
        resources.initialize_resources(resources.shared_resources()),
        v1.get_collection("saved_model_initializers"),
    )


def _ready_op() -> Any:
    return tf.concat(
        [v1.report_uninitialized_variables(), resources.report_uninitialized_resources()], 0
    )


def _ready_for_local_init_op() -> Any:
    return tf.concat(
        [
            v1.report_uninitialized_variables(v1.global_variables()),
            resources.report_uninitialized_resources(resources.shared_resources()),
        ],
        0,
    )


def _saver() -> Any:
    return v1.train.Saver(sharded=True, allow_empty=True)


def _built(saver: Any) -> Any:
    if isinstance(saver, tf.train.Checkpoint):
        from tensorflow.python.checkpoint.graph_view import ObjectGraphView

        return v1.train.Saver(
            var_list=ObjectGraphView(saver).frozen_saveable_objects(), sharded=True
        )
    check_saver(saver)
    build = getattr(saver, "build", None)
    if build is not None:
        build()
    return saver

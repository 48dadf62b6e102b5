"""``StopFlag``: by which the chief of a cluster tells its workers that the training is to stop."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

_SCOPE = "signal_early_stopping"


class StopFlag:
    """A variable of the default graph that all sessions of a cluster share; made once a graph.

    Its name is the one that ``tf.estimator`` gave it: each restores what the other has saved.
    """

    def __init__(self) -> None:
        step = v1.train.get_global_step()
        # It is to be where the others look for it, which is not known of this place in the program.
        with tf.device("" if step is None else step.device):
            with v1.variable_scope(_SCOPE, reuse=v1.AUTO_REUSE):
                variable = v1.get_variable(
                    "STOP", [], tf.bool, v1.zeros_initializer(), trainable=False
                )
            self.tensor = v1.get_default_graph().as_graph_element(variable)
            self._set = _assign(variable, "set", True)
            self._clear = _assign(variable, "clear", False)

    def set(self, session: Any) -> None:
        """Tell all to stop."""
        session.run(self._set)

    def clear(self, session: Any) -> None:
        """Tell all to go on, whatever a checkpoint has brought back."""
        session.run(self._clear)


def _assign(variable: Any, name: str, value: bool) -> Any:
    name = f"{variable.op.name}/{name}"
    try:
        return v1.get_default_graph().get_operation_by_name(name)
    except KeyError:
        with tf.name_scope(f"{variable.op.name}/"):
            return v1.group(v1.assign(variable, value), name=name.rpartition("/")[2])

"""``Scaffold`` with the private names of TensorFlow's that programs use."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from runhooks import session


def _alias(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self, name)

    def put(self: Any, value: Any) -> None:
        setattr(self, name, value)

    return property(get, put, doc=f"As ``{name}``.")


class Scaffold(session.Scaffold):
    """As ``runhooks.Scaffold``, for programs written against ``tf.compat.v1.train.Scaffold``."""

    _init_op = _alias("init_op")
    _init_feed_dict = _alias("init_feed_dict")
    _ready_op = _alias("ready_op")
    _ready_for_local_init_op = _alias("ready_for_local_init_op")
    _local_init_op = _alias("local_init_op")
    _local_init_feed_dict = _alias("local_init_feed_dict")
    _summary_op = _alias("summary_op")
    _saver = _alias("saver")
    _init_fn = _alias("init_fn")
    _user_init_fn = _alias("_given_init_fn")

    @staticmethod
    def default_local_init_op() -> Any:
        """Return an operation that initializes local variables, tables and local resources.

        It belongs to TensorFlow's default graph, that of a function too; None outside any graph.
        """
        return tf.compat.v1.train.Scaffold.default_local_init_op()

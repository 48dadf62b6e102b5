"""The ``Scaffold`` of ``tf.compat.v1.train``."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import tensorflow as tf

from runhooks.session import scaffold


def _alias(name: str) -> property:
    def put(self: Any, value: Any) -> None:
        setattr(self, name, value)

    return property(attrgetter(name), put, doc=f"As ``{name}``.")


class Scaffold(scaffold.Scaffold):
    """As ``runhooks.Scaffold``, with private names that programs use."""

    @staticmethod
    def default_local_init_op() -> Any:
        """Return an operation that initializes local variables, tables and local resources.

        It belongs to TensorFlow's default graph, that of a function too; None outside any graph.
        """
        return tf.compat.v1.train.Scaffold.default_local_init_op()


_PUBLIC = (
    *("init_op", "init_feed_dict", "local_init_op", "local_init_feed_dict", "init_fn"),
    *("ready_op", "ready_for_local_init_op", "summary_op", "saver"),
)
for _private, _name in [*((f"_{it}", it) for it in _PUBLIC), ("_user_init_fn", "_given_init_fn")]:
    setattr(Scaffold, _private, _alias(_name))

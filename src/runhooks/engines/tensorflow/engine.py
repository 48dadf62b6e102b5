"""``TensorFlowEngine``: what TensorFlow's errors mean, and what its devices say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.platform import tf_logging

from runhooks.engines.tensorflow.nan_loss import NanLossDuringTrainingError
from runhooks.engines.tensorflow.run_trace import RunTrace
from runhooks.errors import AbortedError, UnavailableError, register_end_of_input
from runhooks.summary import SessionLog, Summary

_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, AbortedError, UnavailableError)

register_end_of_input(tf.errors.OutOfRangeError)


class TensorFlowEngine:
    """The part of an engine that is asked of a graph which TensorFlow itself computes."""

    name = "tensorflow"
    #: What its users have set the verbosity of: hooks log here.
    log = tf_logging
    #: What a NaN loss raises.
    nan_loss_error = NanLossDuringTrainingError

    def is_lost(self, error: BaseException) -> bool:
        """Whether ``error`` means that the session is lost and may be replaced."""
        return isinstance(error, _LOST)

    def memory(self) -> dict[str, int]:
        """As ``Engine.memory``: of the GPUs; the CPU's is not counted."""
        found: dict[str, int] = {}
        for device in tf.config.list_logical_devices("GPU"):
            name = device.name.removeprefix("/device:").lower()
            info = tf.config.experimental.get_memory_info(device.name.removeprefix("/device:"))
            found |= {f"{name}/{kind}_bytes": int(number) for kind, number in info.items()}
        return found

    def trace_runs(self, folder: Path, *, show_dataflow: bool, show_memory: bool) -> RunTrace:
        """What traces single runs, in place of a profiler that runs beside them."""
        return RunTrace(folder, show_dataflow=show_dataflow, show_memory=show_memory)

    def message(self, message: Any) -> Any:
        """A ``Summary`` or ``SessionLog`` of runhooks as TensorFlow's; all else is as it is."""
        kind = _MESSAGES.get(type(message))
        return message if kind is None else kind.FromString(message.SerializeToString())


_MESSAGES: dict[type, Any] = {
    Summary: tf.compat.v1.Summary,
    SessionLog: tf.compat.v1.SessionLog,
}

ENGINE = TensorFlowEngine()

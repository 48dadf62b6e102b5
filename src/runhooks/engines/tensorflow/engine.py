"""``TensorFlowEngine``: what TensorFlow's errors mean, and what its devices say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from runhooks.errors import AbortedError, UnavailableError, register_end_of_input

_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, AbortedError, UnavailableError)

register_end_of_input(tf.errors.OutOfRangeError)


class TensorFlowEngine:
    """The part of an engine that is asked of a graph which TensorFlow itself computes."""

    name = "tensorflow"

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

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        """As ``Engine.start_profile``: what TensorBoard's profile tab reads."""
        try:
            tf.profiler.experimental.start(str(folder))
        except tf.errors.AlreadyExistsError as error:
            raise RuntimeError("a profiler of TensorFlow is running already") from error

        def stop() -> Path:
            tf.profiler.experimental.stop()
            return folder

        return stop


ENGINE = TensorFlowEngine()

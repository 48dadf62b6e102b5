"""Hyperparameters of a run, and what came of them.

Field numbers are those of ``plugins/hparams/plugin_data.proto`` and ``api.proto`` of TensorBoard,
and of ``google/protobuf/struct.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks import clock
from runhooks.arrays.values import is_array, to_numpy
from runhooks.events.format import wire
from runhooks.events.format.wire import int_field, text_field
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_START, _END = 3, 4
_TAGS = {
    _START: "_hparams_/session_start_info",
    _END: "_hparams_/session_end_info",
}
_SUCCESS = 1
_NOTHING = np.empty(0, np.float32)  # all is in the metadata, but a value has to have something

_Plain = bool | float | str


def hparams_values(hparams: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[Value]:
    """Return the hyperparameters of a run, to be written.

    There is no record of the experiment among them: it would list the hyperparameters of all
    runs, of which this run knows its own, and TensorBoard shows no others then. Without one,
    TensorBoard finds them by itself.

    Args:
        hparams: bools, numbers and strs by name; anything else becomes its ``str``.
        metrics: How well the run did, numbers by tag; with them it counts as finished.

    Raises:
        TypeError: Either is not a mapping with names that are str, or a metric is not a number.
        ValueError: A metric is not of size 1.
    """
    _check_names("hparams", hparams)
    _check_names("metrics", metrics)
    plain = {name: _plain(value) for name, value in hparams.items()}
    now = clock.wall()
    start = [*map(_hparam, plain, plain.values()), wire.double_field(5, now)]
    values = [_session(_START, b"".join(start))]
    if metrics:
        end = int_field(1, _SUCCESS) + wire.double_field(2, now)
        values += [scalar_value(tag, number) for tag, number in metrics.items()]
        values.append(_session(_END, end))
    return values


def _check_names(argument: str, values: Any) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"{argument} must be a dict of values by name, got {values!r}: "
            "vars(...) makes one of a Namespace"
        )
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"the names of {argument} must be str, got {name!r}")


def _plain(value: Any) -> _Plain:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value)
    array = to_numpy(value) if is_array(value) else np.asarray(None)
    if array.ndim == 0 and array.dtype.kind in "biuf":
        return bool(array) if array.dtype.kind == "b" else float(array)
    return str(value)


def _hparam(name: str, value: _Plain) -> bytes:
    if isinstance(value, bool):
        content = wire.varint_field(4, value)
    elif isinstance(value, float):
        content = wire.double_field(2, value)
    else:
        content = wire.bytes_field(3, value.encode())
    return wire.bytes_field(1, text_field(1, name) + wire.bytes_field(2, content))


def _session(kind: int, content: bytes) -> Value:
    metadata = SummaryMetadata("hparams", wire.bytes_field(kind, content))
    return Value(_TAGS[kind], metadata, _encode)


def _encode(tag: str, metadata: SummaryMetadata) -> bytes:
    return tensor_entry(tag, encode_tensor(tag, _NOTHING), metadata)

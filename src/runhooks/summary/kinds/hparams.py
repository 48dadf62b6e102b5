"""Hyperparameters of a run, and what came of them.

Field numbers are those of TensorBoard's ``plugins/hparams/plugin_data.proto`` and ``api.proto``,
and of ``google/protobuf/struct.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runhooks import clock
from runhooks.arrays.values import is_array, to_numpy
from runhooks.events.format import proto
from runhooks.events.format.proto import int_field, text_field
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_EXPERIMENT, _START, _END = 2, 3, 4
_TAGS = {
    _EXPERIMENT: "_hparams_/experiment",
    _START: "_hparams_/session_start_info",
    _END: "_hparams_/session_end_info",
}
_SUCCESS = 1
_NOTHING = np.empty(0, np.float32)  # all is in the metadata

_Plain = bool | float | str
_DATA_TYPES = {str: 1, bool: 2, float: 3}


def hparams_values(
    hparams: Mapping[str, Any],
    metrics: Mapping[str, Any],
    domains: Mapping[str, Sequence[Any]] | None = None,
) -> list[Value]:
    """Return the hyperparameters of a run.

    Args:
        hparams: bools, numbers, strs and functions (their names) by name; of anything else, its
            ``str``.
        metrics: How well the run did, numbers by tag; with them it counts as finished.
        domains: Lists of all values of hyperparameters, by name. With them, TensorBoard shows these
            hyperparameters and metrics, and no others of any run.

    Raises:
        TypeError: One is not a mapping with names that are str, a metric is not a number, or a
            domain is not a list.
        ValueError: A metric is not of size 1, or a domain is of no hyperparameter.
    """
    _check_names("hparams", hparams)
    _check_names("metrics", metrics)
    plain = {name: _plain(value) for name, value in hparams.items()}
    now = clock.wall()
    values = [_experiment(plain, metrics, domains)] if domains else []
    start = [
        proto.bytes_field(1, text_field(1, name) + proto.bytes_field(2, _encoded(value)))
        for name, value in plain.items()
    ]
    values.append(_record(_START, b"".join((*start, proto.double_field(5, now)))))
    if metrics:
        end = int_field(1, _SUCCESS) + proto.double_field(2, now)
        values += [scalar_value(tag, number) for tag, number in metrics.items()]
        values.append(_record(_END, end))
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
    if array.size == 1 and array.dtype.kind in "biuf":
        return bool(array.item()) if array.dtype.kind == "b" else float(array.item())
    name = getattr(value, "__name__", None) if callable(value) else None
    return name if isinstance(name, str) else str(value)


def _encoded(value: _Plain) -> bytes:
    if isinstance(value, bool):
        return proto.varint_field(4, value)
    if isinstance(value, float):
        return proto.double_field(2, value)
    return proto.bytes_field(3, value.encode())


def _experiment(
    hparams: Mapping[str, _Plain], metrics: Mapping[str, Any], domains: Mapping[str, Sequence[Any]]
) -> Value:
    _check_names("the domains", domains)
    for name, domain in domains.items():
        if name not in hparams:
            known = ", ".join(map(repr, hparams))
            raise ValueError(f"there is a domain of {name!r}, which is no hyperparameter: {known}")
        if not isinstance(domain, list | tuple):
            raise TypeError(f"the domain of {name!r} must be a list of its values, got {domain!r}")
    parts = []
    for name, value in hparams.items():
        listed = [proto.bytes_field(1, _encoded(_plain(it))) for it in domains.get(name, ())]
        domain_field = proto.bytes_field(5, b"".join(listed)) if listed else b""
        info = text_field(1, name) + int_field(4, _DATA_TYPES[type(value)]) + domain_field
        parts.append(proto.bytes_field(4, info))
    parts += [proto.bytes_field(5, proto.bytes_field(1, text_field(2, tag))) for tag in metrics]
    return _record(_EXPERIMENT, b"".join(parts))


def _record(kind: int, content: bytes) -> Value:
    metadata = SummaryMetadata("hparams", proto.bytes_field(kind, content))
    return Value(_TAGS[kind], metadata, _encode)


def _encode(tag: str, metadata: SummaryMetadata) -> bytes:
    return tensor_entry(tag, encode_tensor(tag, _NOTHING), metadata)

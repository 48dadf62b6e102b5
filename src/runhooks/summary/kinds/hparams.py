"""Hyperparameters of a run, and what came of them.

Field numbers are those of ``plugins/hparams/plugin_data.proto`` and ``api.proto`` of TensorBoard,
and of ``google/protobuf/struct.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runhooks import clock
from runhooks.arrays.values import is_array, to_numpy
from runhooks.events.format import proto
from runhooks.events.format.proto import int_field, text_field
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, entry, tensor_entry

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
    start = [*map(_hparam, plain, plain.values()), proto.double_field(5, now)]
    values = [_session(_START, b"".join(start))]
    if metrics:
        end = int_field(1, _SUCCESS) + proto.double_field(2, now)
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
        content = proto.varint_field(4, value)
    elif isinstance(value, float):
        content = proto.double_field(2, value)
    else:
        content = proto.bytes_field(3, value.encode())
    return proto.bytes_field(1, text_field(1, name) + proto.bytes_field(2, content))


def _session(kind: int, content: bytes) -> Value:
    metadata = SummaryMetadata("hparams", proto.bytes_field(kind, content))
    return Value(_TAGS[kind], metadata, _encode)


def _encode(tag: str, metadata: SummaryMetadata) -> bytes:
    return tensor_entry(tag, encode_tensor(tag, _NOTHING), metadata)


_EXPERIMENT, _STARTED, _ENDED = 2, 3, 4
_EXPERIMENT_TAGS = {
    _EXPERIMENT: "_hparams_/experiment",
    _STARTED: "_hparams_/session_start_info",
    _ENDED: "_hparams_/session_end_info",
}
_STRING, _NUMBER = 1, 3  # of DataType
_METADATA = 9


class _Kind(NamedTuple):
    data_type: int
    encode: Callable[[Any], bytes]


_TEXT = _Kind(_STRING, lambda value: proto.bytes_field(3, value.encode()))
_FLOAT = _Kind(_NUMBER, lambda value: proto.double_field(2, float(value)))


def experiment_values(
    hparams: Mapping[str, Any],
    metrics: Sequence[str],
    domains: Mapping[str, Sequence[Any]] | None = None,
) -> list[Value]:
    """Return the records of one run: of the experiment, the start of the session, and its end.

    Args:
        hparams: Numbers, bools (which are written as numbers), strs, functions or classes (their
            names), or arrays of one number, by name; None is left out.
        metrics: The tags of the scalars that say how well the run did.
        domains: All the values that a hyperparameter may have, by name, of its own type.

    Raises:
        TypeError: An argument is something else, or a domain has values of another type.
        ValueError: A hyperparameter is none of these.
    """
    if not isinstance(hparams, Mapping):
        raise TypeError(f"hparam_dict must be a dict of values by name, got {hparams!r}")
    _check_domains(hparams, domains or {})
    infos, starts = [], []
    for name, value in hparams.items():
        if value is None:
            continue
        kind, plain = _typed(name, value)
        listed = [proto.bytes_field(1, kind.encode(one)) for one in (domains or {}).get(name, ())]
        domain = proto.bytes_field(5, b"".join(listed)) if listed else b""
        infos.append(text_field(1, name) + int_field(4, kind.data_type) + domain)
        starts.append(text_field(1, name) + proto.bytes_field(2, kind.encode(plain)))
    tags = [proto.bytes_field(1, text_field(2, tag)) for tag in metrics]
    experiment = [proto.bytes_field(4, info) for info in infos]
    experiment += [proto.bytes_field(5, tag) for tag in tags]
    return [
        _record(_EXPERIMENT, b"".join(experiment)),
        _record(_STARTED, b"".join(proto.bytes_field(1, start) for start in starts)),
        _record(_ENDED, int_field(1, _SUCCESS)),
    ]


def _check_domains(hparams: Mapping[str, Any], domains: Mapping[str, Any]) -> None:
    if not isinstance(domains, Mapping):
        raise TypeError(f"hparam_domain_discrete must be a dict of lists by name, got {domains!r}")
    for name, domain in domains.items():
        if name not in hparams:
            raise TypeError(
                f"hparam_domain_discrete has {name!r}, which is none of the hyperparameters "
                f"{', '.join(map(repr, hparams))}"
            )
        kind = type(hparams[name])
        if not isinstance(domain, list) or not all(isinstance(one, kind) for one in domain):
            raise TypeError(
                f"hparam_domain_discrete[{name!r}] must be a list of {kind.__name__}, as the "
                f"hyperparameter is, got {domain!r}"
            )


def _typed(name: str, value: Any) -> tuple[_Kind, Any]:
    if isinstance(value, str):
        return _TEXT, value
    if isinstance(value, int | float):
        return _FLOAT, value
    if callable(value) and not is_array(value):
        return _TEXT, getattr(value, "__name__", str(value))
    array = to_numpy(value) if is_array(value) else None
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"the hyperparameter {name!r} must be a bool, a number, a str, a function or an array "
            f"of one number, got {value!r}"
        )
    return _FLOAT, array.item()


def _record(kind: int, content: bytes) -> Value:
    metadata = SummaryMetadata("hparams", proto.bytes_field(kind, content))
    return Value(_EXPERIMENT_TAGS[kind], metadata.SerializeToString(), _encode_experiment)


def _encode_experiment(tag: str, metadata: bytes) -> bytes:
    return entry(tag, proto.bytes_field(_METADATA, metadata))
